"""REST: translates, and nothing else."""
