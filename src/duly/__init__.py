"""Duly: a distributed, multi-tenant task scheduler. In due time, as promised."""

__version__ = "0.1.0"
