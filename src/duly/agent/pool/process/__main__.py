"""Starts a warm process: connect, import the application, say that it is ready, run calls."""

import gc
import json
import os
import signal
import sys
import threading
from typing import Any

from duly.agent.pool.begun_ring import BegunRing
from duly.agent.pool.messages import End, Follow, Quit, Ready, Run, Silence, ToProcess
from duly.agent.pool.process import routed_output
from duly.agent.pool.process.captured_output import CapturedOutput
from duly.agent.pool.process.connection import Connection
from duly.agent.pool.process.one_at_a_time import OneAtATime
from duly.client.functions.loading import load_app
from duly.errors import DulyError

PROOF = "_DULY_PROOF"
BAD_APPLICATION_EXIT_CODE = 3


def main() -> None:
    """Run calls until the session says to quit, or is gone."""
    config = json.loads(sys.argv[1])
    sys.argv = [config["app"]]
    proof = os.environ.pop(PROOF)
    # Ctrl-C is for the session, and so is whatever else a terminal sends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(config["folder"], config["socket"])
    ring = BegunRing(config["ring"])
    is_single = config["threads"] == config["concurrency"] == 1
    if not is_single:
        routed_output.route()
    app = _load(config["app"])
    runner = _runner(app, connection, ring, config, is_single=is_single)
    has_loop = any(task.is_async for task in app.tasks.values())
    if has_loop:
        runner.run_async(app.start_process_async())
    else:
        app.start_process()
    if is_single:
        runner.capture(CapturedOutput(config["spool"], config["process"]))
    gc.collect()
    gc.freeze()
    connection.send(Ready(proof, _functions(app), _source_files() if config["files"] else []))
    reader = threading.Thread(
        target=connection.read, args=(lambda message: _handle(runner, message),), daemon=True
    )
    reader.start()
    runner.run()
    if has_loop:
        runner.run_async(app.stop_process_async())
    else:
        app.stop_process()
    sys.stdout.flush()
    # Threads of the application must not keep the process.
    os._exit(0)


def _load(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return load_app(name)
    except DulyError as error:
        sys.stderr.write(f"{error.message}\n")
        raise SystemExit(BAD_APPLICATION_EXIT_CODE) from error


def _runner(
    app: Any, connection: Connection, ring: BegunRing, config: dict[str, Any], *, is_single: bool
) -> Any:
    if is_single:
        return OneAtATime(app, connection, ring)
    from duly.agent.pool.process.many_at_once import ManyAtOnce

    threads, concurrency = config["threads"], config["concurrency"]
    return ManyAtOnce(app, connection, ring, threads=threads, concurrency=concurrency)


def _handle(runner: Any, message: ToProcess) -> None:
    match message:
        case Run():
            runner.add(message)
        case End():
            runner.end(message)
        case Silence(number):
            runner.silence(number)
        case Follow(number):
            runner.follow(number)
        case Quit():
            runner.quit()


def _functions(app: Any) -> list[str]:
    return sorted({name for task in app.tasks.values() for name in (task.name, *task.aliases)})


def _source_files() -> list[str]:
    """Return the modules that are the application's own: neither installed nor built in."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    installed = (sys.prefix, sys.base_prefix)
    return sorted({file for file in files if file and not file.startswith(installed)})


if __name__ == "__main__":
    main()
