"""Tests of applications: run tasks inline, or against a throw-away Duly.

`inline()` runs every task in this process as it is submitted. `server()` starts a whole Duly with
a worker, which needs `pip install 'duly[server]'`. `duly.testing.fixtures` has pytest fixtures.
"""

from duly.client.functions.inline import Inline, InlineTask
from duly.testing.inline_tasks import inline
from duly.testing.throw_away import Server, server

__all__ = ["Inline", "InlineTask", "Server", "inline", "server"]
