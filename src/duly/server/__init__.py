"""The components of a server, one file each."""
