"""Keeps attempts within their resource limits.

`cgroup.py` limits, freezes, measures and kills whole process trees where the machine allows it;
`memory_sampler.py` and `disk_watch.py` sample what cgroups do not limit. `shortage.py` handles
shortages of the node itself. Outcomes are decided in `duly.agent.supervision`. Start with
`cgroup.py`.
"""
