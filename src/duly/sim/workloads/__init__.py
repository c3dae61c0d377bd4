"""Workloads of the simulator: the fleet, the tenants, and the tasks that arrive.

A `Workload` is read from a TOML file (`workload_file.py`) or a trace (`swf.py`), or made from what
an installation has run (`history.py`). `fleet_options.py` changes it, and `arrivals.py` draws its
tasks. Start with `workload.py`.
"""
