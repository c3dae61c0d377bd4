"""The command line; every command that talks to a server does so through the client.

`main.py` lists the commands and imports a command's module only when it is used, because imports
dominate the run time of a command. `connect.py` opens the client, `exit_codes.py` defines the exit
codes. The folders have one file per command or group of commands; `output` prints for all of them.
Start with `main.py`.
"""
