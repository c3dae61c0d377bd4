"""The Python client of the REST API."""
