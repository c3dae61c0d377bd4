"""procrastinate with PostgreSQL: the peer with the same durability guarantee."""

from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Facts

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.tasks import Task

CONCURRENCY = 2


class ProcrastinatePostgres(PythonQueue):
    """Two worker processes, notified of new tasks by LISTEN."""

    workers = 2
    about = About(
        name="procrastinate",
        title="procrastinate",
        packages=("procrastinate", "psycopg[binary]"),
        brokers=(Broker.POSTGRES,),
        settings=(
            f"two worker processes, `concurrency = {CONCURRENCY}` each, `listen_notify`",
            "PostgreSQL with the programs and settings that Duly embeds, fsync on",
            "submitted in one batch with `batch_defer`",
        ),
        facts=Facts(
            worker_killed="stays in `doing` until stalled jobs are retried: the docs show "
            "a periodic task that does so, 30 s after the last heartbeat at the earliest",
            isolation="none: tasks are threads of the worker's process",
            caps="none",
            logs="the worker's own log; the function has to keep the output of a command",
        ),
    )

    def app(self) -> "tuple[App, Task]":
        """Return the application with a thread-safe connector, and its one task."""
        from procrastinate import App, PsycopgConnector

        app = App(connector=PsycopgConnector(conninfo=self.context.broker))
        return app, app.task(name="run")(self.function())

    def work(self) -> None:
        """Run a worker as `procrastinate worker` does."""
        app, _ = self.app()
        app.run_worker(concurrency=CONCURRENCY, listen_notify=True)

    def prepare(self) -> None:
        """Create the tables, start the workers, and connect."""
        app, self._task = self.app()
        app.open()
        app.schema_manager.apply_schema()
        super().prepare()

    def submit(self, numbers: range, command: list[str]) -> None:
        """Insert all tasks with one statement."""
        self._task.batch_defer(*({"number": number, "command": command} for number in numbers))
