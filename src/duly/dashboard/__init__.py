"""The dashboard: web pages for people, in a process that is an API client like any other.

Every request passes `access.py`, which admits sessions and refuses all else; then `feed.py` polls
the API with the key of that session, `view.py` converts responses into plain values, and
`pages.py` shows them. Nothing here sees the database. Start with `app.py`.
"""
