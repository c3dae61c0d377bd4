"""Who may see the dashboard: the gate before every request, logins, links and sessions.

`access.py` admits requests with a session, and is the file to read first; `authentication.py`
creates sessions, which `sessions.py` keeps. A `Visitor` goes out, who is the user of the pages.
"""
