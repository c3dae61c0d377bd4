"""The simulator: the scheduler's own policies in a world without I/O.

A `Workload` comes in, from a TOML file or a trace (`workloads`), and a `Report` comes out.
`simulation.py` is the event loop and the file to read first; `scheduler.py` is the only one that
calls the policies, the same functions as the server's rounds. `cluster.py` has the nodes,
`subqueues.py` the waiting tasks, `recorder.py` what is measured.

Only the readers of files do I/O. The same workload, policy and seed give the same history.
"""
