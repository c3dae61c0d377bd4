"""Compares Duly with other ways to run many commands, in one run on one machine.

    __main__.py      which systems, in order; the table at the end
    session.py       one system: its environment, its broker, the process that drives it
    drive.py         that process, inside the environment of the system
    measure.py       what is measured, the same for all
    system.py        what a system must be able to do: prepare, submit, wait, stop
    systems/         one file for each system
    limit.py         what the machine can do: posix_spawn
    figures.py       what comes out, as values and as JSON
    table.py         the same as tables

`drive.py` and what it imports run with nothing but Python and the system's own packages.
"""
