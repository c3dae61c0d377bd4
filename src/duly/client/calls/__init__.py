"""The calls of the API as values, and the methods of both clients that make them.

Arguments come in, and a `Call` goes out: method, path and body, which the sync and the async client
send in their own way. So each route is described once. Start with `task_calls.py`.
"""
