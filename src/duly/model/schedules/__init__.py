"""Schedules and their recurrence rules, cron expressions included. Start with `schedule.py`."""
