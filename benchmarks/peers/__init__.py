"""Compares Duly with other ways to run many commands, in one run on one machine.

    __main__.py      which systems, in which order; prints the table
    session.py       one system: its environment, its broker, and the driver process
    drive.py         the driver process, inside the environment of the system
    measure.py       what is measured, the same for all systems
    system.py        the interface of a system: prepare, submit, wait, check, stop
    systems/         one file for each system
    limit.py         the limit of the machine: posix_spawn
    figures.py       the results, as values and as JSON
    table.py         the results as tables

`drive.py` and the modules that it imports need only Python and the packages of the system.
"""
