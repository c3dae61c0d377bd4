"""A worker: runs calls of functions in warm processes, instead of commands.

Session, state machine, lease and reports are those of an agent. `function_executor.py` distributes
calls to processes and ends those that must end; `process_pool.py` keeps the processes, which the
supervisor starts and controls, so that self-fencing holds even if the session hangs; `process/` is
what runs in them. `messages.py` is the protocol between both, `pace.py` how much work is asked for.
Start with `function_executor.py`, then `process/__init__.py`.
"""
