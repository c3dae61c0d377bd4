"""A demo of about a minute: a photo, a payment, Python functions, and a node that dies.

Everything runs on a temporary `duly up`. Each chapter ends with checks; the exit code is 0 only if
all of them hold.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import demo_shop
from rich.console import Console
from rich.live import Live
from rich.table import Table
from throwaway import Throwaway

import duly
from duly.client.shapes.task_shapes import FINAL_STATUSES, ResourceFields, Task, TaskFields

MAX_SECONDS = 180
CHAPTER_TIMEOUT_SECONDS = 60.0
"""Time limit for the tasks of a chapter."""
SETTINGS = {"DULY_RETRIES__BASE_DELAY": "1s", "DULY_EXECUTION__GRACE": "1s"}
"""Shorter than the defaults, to keep the demo short."""
THUMBNAILS = 500
COLOURS = {
    "blocked": "magenta",
    "waiting": "yellow",
    "running": "blue",
    "done": "green",
    "failed": "red",
}


@dataclass
class Demo:
    """The running demo: its server, and the checks so far."""

    console: Console
    server: Throwaway
    client: duly.Client
    cpu: float
    checks: list[tuple[str, str, bool]] = field(default_factory=list)

    def check(self, claim: str, evidence: str, holds: bool) -> None:
        """Record and print whether a claim holds."""
        self.checks.append((claim, evidence, holds))
        mark = "[green]yes[/]" if holds else "[red]NO[/]"
        self.console.print(f"  {mark}  {claim} [dim]({evidence})[/]")

    def submit(self, name: str, script: str, *, share: float = 0.1, **fields: Any) -> str:
        """Submit a shell script that needs `share` of the machine's cores; return its task id."""
        return self.client.submit(**self.task(name, script, share), **fields)["id"]

    def task(self, name: str, script: str, share: float) -> TaskFields:
        """Return a task that runs a shell script and needs `share` of the machine's cores."""
        needs: ResourceFields = {
            "cpu": round(self.cpu * share, 3),
            "memory_mb": 64,
            "disk_mb": 64,
        }
        return {"name": name, "command": ["sh", "-c", script], "resources": needs}

    def watch(
        self, ids: list[str], until: Callable[[list[Task]], bool] | None = None
    ) -> list[Task]:
        """Show the tasks live until all have ended, or until `until` returns True."""
        until = until or all_ended
        deadline = time.monotonic() + CHAPTER_TIMEOUT_SECONDS
        with Live(console=self.console, refresh_per_second=8, transient=True) as live:
            while True:
                tasks = [self.client.get_task(task) for task in ids]
                live.update(progress(tasks))
                if until(tasks):
                    return tasks
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"After {CHAPTER_TIMEOUT_SECONDS:g} s: {count_by_status(tasks)}"
                    )
                time.sleep(0.2)


def main() -> int:
    """Run all chapters, and return the exit code."""
    console = Console()
    console.print("[bold]Duly[/]: in due time, as promised. Starting a server and a node …")
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.signal(signal.SIGTERM, _on_sigterm)
    signal.alarm(MAX_SECONDS)
    try:
        with Throwaway(SETTINGS) as server, duly.Client(server.url, server.key) as client:
            cpu = _await_node(client)
            console.print(f"Ready after {time.monotonic() - began:.1f} s, with {cpu:g} cores.")
            demo = Demo(console, server, client, cpu)
            for chapter in (photo, urgent, payment, functions, node_failure):
                chapter(demo)
    except KeyboardInterrupt:
        console.print("Stopped. Nothing is left behind.")
        return 130
    except (TimeoutError, RuntimeError, duly.DulyError) as error:
        console.print(f"The demo ended early: {error}", style="red", markup=False)
        return 1
    return summary(demo, time.monotonic() - began)


def photo(demo: Demo) -> None:
    """Encode a photo in three sizes while its copyright is checked, then publish it: a graph."""
    with chapter(
        demo, "A photo is uploaded: three sizes and a check at once, then it is published"
    ):
        work = {f"encode-{size}p": f"echo {size}p ready" for size in (480, 720, 1080)}
        work["check-copyright"] = "echo '\"Kim\"' > $DULY_RESULT"
        tasks = {ref: demo.task(ref, f"sleep 1.5; {action}", 0.25) for ref, action in work.items()}
        author_file = '"$DULY_INPUTS/check-copyright.json"'
        publish = demo.task("publish", f"echo published, taken by $(cat {author_file})", 0.1)
        tasks["publish"] = publish | {"depends_on": list(work)}
        graph = demo.client.submit_graph(tasks, name="photo")
        *parts, published = demo.watch([graph["ids"][ref] for ref in tasks])
        demo.check(
            "three sizes are encoded and one check is made", count_by_status(parts), all_done(parts)
        )
        last_start = max(when(task, "started_at") for task in parts)
        first_end = min(when(task, "finished_at") for task in parts)
        demo.check(
            "they ran beside each other",
            f"the last began {(first_end - last_start).total_seconds():.1f} s before the first end",
            last_start < first_end,
        )
        pause = when(published, "started_at") - max(when(task, "finished_at") for task in parts)
        log = demo.client.read_logs(published["id"]).decode()
        demo.check(
            "it is published, and not before all of them had ended",
            f"{pause.total_seconds():.2f} s after the last of them its log says {log.strip()!r}",
            log == 'published, taken by "Kim"\n' and pause.total_seconds() >= 0,
        )
        stored = demo.client.get_graph(graph["id"])
        demo.check(
            "it was one graph, submitted whole",
            f"{stored['name']}: {stored['status']}, {stored['counts'].get('done', 0)} tasks",
            (stored["status"], stored["counts"]) == ("done", {"done": len(tasks)}),
        )


def urgent(demo: Demo) -> None:
    """Let an urgent task overtake a backlog."""
    with chapter(demo, "A notice that cannot wait overtakes a backlog that can"):
        tolerance: TaskFields = {"delay_tolerance": "10m"}
        backlog = demo.client.submit_many(
            [demo.task(f"thumbnail {n}", "sleep 0.4", 0.5) | tolerance for n in range(1, 25)]
        )
        notice = demo.submit(
            "new device notice", "echo sent", share=0.5, delay_tolerance="1s", execution_cap="10s"
        )
        *others, task = demo.watch([*backlog, notice])
        overtaken = sum(when(other, "started_at") > when(task, "started_at") for other in others)
        demo.check(
            "the notice went first",
            f"submitted last of 25, it overtook {overtaken}",
            all_done([*others, task]) and overtaken >= 12,
        )


def payment(demo: Demo) -> None:
    """Submit a payment twice, and check that it was made once."""
    with chapter(demo, "Sending $10, submitted twice because the first answer was lost"):
        ledger = demo.server.shared / "ledger"
        ledger.touch()
        ledger.chmod(0o666)
        script = f'echo "$DULY_IDEMPOTENCY_KEY 10.00" >> {ledger}'
        first, second = (
            demo.submit("send $10", script, idempotency_key="payment-17") for _ in range(2)
        )
        paid = demo.watch([first, second])
        entries = ledger.read_text().splitlines()
        demo.check("both answers name one task", first, first == second)
        demo.check(
            "the money left once",
            f"lines in the ledger: {len(entries)}",
            all_done(paid) and entries == ["payment-17 10.00"],
        )


def functions(demo: Demo) -> None:
    """Call Python functions in warm processes, one of which crashes."""
    with chapter(demo, "Python functions run in warm processes"), _worker(demo):
        began = time.monotonic()
        handles = demo_shop.thumbnail.submit_many(
            [(f"photo {number}", 240) for number in range(THUMBNAILS)]
        )
        duly.wait(handles, timeout=CHAPTER_TIMEOUT_SECONDS)
        seconds = time.monotonic() - began
        demo.check(
            f"{THUMBNAILS} calls are done",
            f"{THUMBNAILS / seconds:,.0f}/s, the last result is {handles[-1].result()!r}",
            handles[-1].result() == f"photo {THUMBNAILS - 1}@240",
        )
        crashed = demo_shop.broken_library.submit()
        crashed.wait(CHAPTER_TIMEOUT_SECONDS)
        why = demo.client.get_task(crashed.id)["reason"]
        after = demo_shop.thumbnail.submit("one more", 480)
        result = after.result(timeout=CHAPTER_TIMEOUT_SECONDS)
        demo.check(
            "a crash ends its own call only, and the process is replaced",
            why["message"] if why else "no reason",
            (why or {}).get("code") == "process_died" and result == "one more@480",
        )


@contextmanager
def _worker(demo: Demo) -> Iterator[None]:
    """Run a worker, and let the functions of this process be called there."""
    os.environ |= {"DULY_URL": demo.server.url, "DULY_KEY": demo.server.key}
    worker = subprocess.Popen(  # noqa: S603
        [
            *(str(Path(sys.executable).with_name("duly")), "worker", "demo_shop:app"),
            *("--processes", "2", "--data", str(demo.server.folder / "worker")),
        ],
        cwd=Path(__file__).parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(demo.server.folder / "worker.log").open("wb"),
        text=True,
        start_new_session=True,
    )
    try:
        assert worker.stdout is not None  # noqa: S101
        ready = worker.stdout.readline()
        if not ready.startswith("ready:"):
            raise RuntimeError((demo.server.folder / "worker.log").read_text()[-2000:])
        yield
    finally:
        worker.terminate()
        worker.wait(20)


def node_failure(demo: Demo) -> None:
    """Kill the node while tasks run, and check that all of them end as they should."""
    with chapter(demo, "In the middle of all this, the node dies"):
        hopeless = demo.submit("hopeless", "echo no such album >&2; exit 3", max_attempts=2)
        loop = demo.submit(
            "endless loop", "while :; do :; done", execution_cap="2s", max_attempts=1
        )
        videos = [demo.submit(f"video {n}", "sleep 4; echo encoded", share=0.2) for n in (1, 2, 3)]
        demo.watch(videos, until=lambda tasks: all(task["status"] == "running" for task in tasks))
        killed = demo.server.kill_node()
        killed_at = time.monotonic()
        demo.console.print(f"  [red]kill -9[/] of the agent and its processes: {killed} are gone")
        demo.watch(videos, until=lambda tasks: all(task["attempt"] > 1 for task in tasks))
        restarted_after = time.monotonic() - killed_at
        encoded = demo.watch(videos)
        done_after = time.monotonic() - killed_at
        demo.check(
            "every video that ran is done",
            f"running again after {restarted_after:.1f} s, done after {done_after:.1f} s",
            all_done(encoded),
        )
        demo.check(
            "losing the node cost them no attempt",
            ", ".join(f"{task['losses']} lost, {task['failures']} failed" for task in encoded[:1]),
            all(task["losses"] >= 1 and task["failures"] == 0 for task in encoded),
        )
        capped, dead = demo.watch([loop, hopeless])
        demo.check(
            "the endless loop was stopped at its cap",
            reason(capped),
            (capped["status"], capped["outcome"]) == ("failed", "capped"),
        )
        dead_letters = {task["id"]: task for task in demo.client.iter_dead_letters()}
        demo.check(
            "the hopeless task is in the dead letters after its 2 attempts",
            reason(dead),
            dead["id"] in dead_letters and (dead["failures"], dead["exit_code"]) == (2, 3),
        )


@contextmanager
def chapter(demo: Demo, title: str) -> Iterator[None]:
    """Print the title of a chapter, and its duration at the end."""
    demo.console.print(f"\n[bold]{title}[/]")
    began = time.monotonic()
    yield
    demo.console.print(f"  [dim]{time.monotonic() - began:.1f} s[/]")


def summary(demo: Demo, seconds: float) -> int:
    """Print a table of all checks, and return the exit code."""
    table = Table(title=f"{len(demo.checks)} checks in {seconds:.0f} s", title_justify="left")
    table.add_column("promised")
    table.add_column("seen")
    table.add_column("holds")
    for claim, evidence, holds in demo.checks:
        table.add_row(claim, evidence, "[green]yes[/]" if holds else "[red]NO[/]")
    demo.console.print()
    demo.console.print(table)
    return 0 if all(holds for _, _, holds in demo.checks) else 1


def progress(tasks: list[Task]) -> Table:
    """Return a table with a line for each task."""
    table = Table.grid(padding=(0, 2))
    for task in tasks:
        colour = COLOURS.get(task["status"], "dim")
        attempt = f"attempt {task['attempt']}" if task["attempt"] else ""
        table.add_row(f"  {task['name']}", f"[{colour}]{task['status']}[/]", f"[dim]{attempt}[/]")
    return table


def count_by_status(tasks: list[Task]) -> str:
    """Return the number of tasks in each status, as text."""
    statuses = [task["status"] for task in tasks]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def reason(task: Task) -> str:
    """Return the reason for the status of a task, or the status."""
    return task["reason"]["message"] if task["reason"] else task["status"]


def when(task: Task, field_name: str) -> datetime:
    """Return a time of the task; the far future if it is not set."""
    text = dict(task).get(field_name)
    return datetime.fromisoformat(str(text or "9999-12-31T00:00:00+00:00"))


def all_ended(tasks: list[Task]) -> bool:
    """Return True if every task has ended."""
    return all(task["status"] in FINAL_STATUSES for task in tasks)


def all_done(tasks: list[Task]) -> bool:
    """Return True if every task is done."""
    return all(task["status"] == "done" for task in tasks)


def _await_node(client: duly.Client) -> float:
    """Return the number of cores, once the node has joined."""
    deadline = time.monotonic() + CHAPTER_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        cpu: float = client.status()["capacity"]["cpu"]
        if cpu:
            return cpu
        time.sleep(0.1)
    raise TimeoutError("No node has joined.")


def _on_alarm(*_: object) -> None:
    raise TimeoutError(f"The demo has not ended after {MAX_SECONDS} s.")


def _on_sigterm(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
