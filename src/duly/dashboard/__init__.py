"""The dashboard: web pages for people, in a process that is an API client like any other.

Every request passes `login/access.py`, which admits only those with a session. For each session
`feed.py` polls the API with its key, `view.py` converts the responses into plain values, and
`pages.py` shows them. Nothing here sees the database. Start with `app.py`.
"""
