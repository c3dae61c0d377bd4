"""The measured systems, one file each. Their interface is in `system.py`."""
