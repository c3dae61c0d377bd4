"""Requests of clients, checked and completed into values of `duly.model`.

Start with `task_request.py`: the fields of a task, their defaults and bounds.
"""
