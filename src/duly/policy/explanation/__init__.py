"""Explains why a task is where it is, from the values that the scheduler decides by."""
