"""One file for each system. What they must be able to do is in `system.py`."""
