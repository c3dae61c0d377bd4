"""Requests of clients, checked and completed into values of `duly.model`.

`task_request.py` is the most important one: the fields of a task, their defaults and bounds.
"""
