"""The PostgreSQL that `duly up` runs in its data folder.

Start with `embedded_postgres.py`: it creates, starts, adopts and stops the cluster. The other
files know its programs, processes, roles, and the system user that it runs as.
"""
