"""A story in about a minute: what Duly does with a photo, a payment, an endless loop and a crash.

Everything runs for real on a Duly of its own. Each chapter ends with checks; the
exit code is 0 only if all of them hold.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from throwaway import Throwaway

import duly
from duly.client.shapes.task_shapes import FINAL_STATUSES, ResourceFields, Task, TaskFields

HARD_STOP = 180
PATIENCE = 60.0
"""Seconds that one chapter may take."""
SETTINGS = {"DULY_RETRIES__BASE_DELAY": "1s", "DULY_EXECUTION__GRACE": "1s"}
"""So that the audience need not wait for the usual pauses."""
COLOURS = {
    "blocked": "magenta",
    "waiting": "yellow",
    "running": "blue",
    "done": "green",
    "failed": "red",
}


@dataclass
class Story:
    """The stage: a server to talk to, and what has been seen so far."""

    console: Console
    place: Throwaway
    client: duly.Client
    cpu: float
    checks: list[tuple[str, str, bool]] = field(default_factory=list)

    def check(self, claim: str, seen: str, holds: bool) -> None:
        """Note whether something that was promised came true."""
        self.checks.append((claim, seen, holds))
        mark = "[green]yes[/]" if holds else "[red]NO[/]"
        self.console.print(f"  {mark}  {claim} [dim]({seen})[/]")

    def submit(self, name: str, script: str, *, share: float = 0.1, **fields: Any) -> str:
        """Submit a shell script that takes a share of the machine's cores, and return its id."""
        return self.client.submit(**self.task(name, script, share), **fields)["id"]

    def task(self, name: str, script: str, share: float) -> TaskFields:
        """Describe a shell script that takes a share of the machine's cores."""
        needs: ResourceFields = {
            "cpu": round(self.cpu * share, 3),
            "memory_mb": 64,
            "disk_mb": 64,
        }
        return {"name": name, "command": ["sh", "-c", script], "resources": needs}

    def see(self, ids: list[str], until: Callable[[list[Task]], bool] | None = None) -> list[Task]:
        """Show the tasks live until all have ended, or until what `until` says."""
        until = until or all_ended
        give_up = time.monotonic() + PATIENCE
        with Live(console=self.console, refresh_per_second=8, transient=True) as live:
            while True:
                tasks = [self.client.get_task(task) for task in ids]
                live.update(progress(tasks))
                if until(tasks):
                    return tasks
                if time.monotonic() > give_up:
                    raise TimeoutError(f"After {PATIENCE:g} s it looks like this: {told(tasks)}")
                time.sleep(0.2)


def main() -> int:
    """Tell the story, and return how it ended as an exit code."""
    console = Console()
    console.print("[bold]Duly[/]: in due time, as promised. Starting a server and a node …")
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _too_late)
    signal.signal(signal.SIGTERM, _interrupted)
    signal.alarm(HARD_STOP)
    try:
        with Throwaway(SETTINGS) as place, duly.Client(place.url, place.key) as client:
            cpu = _await_node(client)
            console.print(f"Ready after {time.monotonic() - began:.1f} s, with {cpu:g} cores.")
            story = Story(console, place, client, cpu)
            for chapter in (photo, urgent, payment, disaster):
                chapter(story)
    except KeyboardInterrupt:
        console.print("Stopped. Nothing is left behind.")
        return 130
    except (TimeoutError, RuntimeError, duly.DulyError) as error:
        console.print(f"The story ended early: {error}", style="red", markup=False)
        return 1
    return summary(story, time.monotonic() - began)


def photo(story: Story) -> None:
    """Encode a photo in three sizes while its copyright is checked, then publish it: a graph."""
    with chapter(
        story, "A photo is uploaded: three sizes and a check at once, then it is published"
    ):
        work = {f"encode-{size}p": f"echo {size}p ready" for size in (480, 720, 1080)}
        work["check-copyright"] = "echo '\"Kim\"' > $DULY_RESULT"
        tasks = {ref: story.task(ref, f"sleep 1.5; {do}", 0.25) for ref, do in work.items()}
        by = '"$DULY_INPUTS/check-copyright.json"'
        publish = story.task("publish", f"echo published, taken by $(cat {by})", 0.1)
        tasks["publish"] = publish | {"depends_on": list(work)}
        graph = story.client.submit_graph(tasks, name="photo")
        *parts, published = story.see([graph["ids"][ref] for ref in tasks])
        story.check("three sizes are encoded and one check is made", told(parts), all_done(parts))
        last_start = max(when(task, "started_at") for task in parts)
        first_end = min(when(task, "finished_at") for task in parts)
        story.check(
            "they ran beside each other",
            f"the last began {(first_end - last_start).total_seconds():.1f} s before the first end",
            last_start < first_end,
        )
        pause = when(published, "started_at") - max(when(task, "finished_at") for task in parts)
        log = story.client.read_logs(published["id"]).decode()
        story.check(
            "it is published, and not before all of them had ended",
            f"{pause.total_seconds():.2f} s after the last of them its log says {log.strip()!r}",
            log == 'published, taken by "Kim"\n' and pause.total_seconds() >= 0,
        )
        whole = story.client.get_graph(graph["id"])
        story.check(
            "it was one graph, submitted whole",
            f"{whole['name']}: {whole['status']}, {whole['counts'].get('done', 0)} tasks",
            (whole["status"], whole["counts"]) == ("done", {"done": len(tasks)}),
        )


def urgent(story: Story) -> None:
    """Let a task that cannot wait overtake many that can."""
    with chapter(story, "A notice that cannot wait overtakes a backlog that can"):
        patient: TaskFields = {"delay_tolerance": "10m"}
        backlog = story.client.submit_many(
            [story.task(f"thumbnail {n}", "sleep 0.4", 0.5) | patient for n in range(1, 25)]
        )
        notice = story.submit(
            "new device notice", "echo sent", share=0.5, delay_tolerance="1s", execution_cap="10s"
        )
        *others, task = story.see([*backlog, notice])
        overtaken = sum(when(other, "started_at") > when(task, "started_at") for other in others)
        story.check(
            "the notice went first",
            f"submitted last of 25, it overtook {overtaken}",
            all_done([*others, task]) and overtaken >= 12,
        )


def payment(story: Story) -> None:
    """Submit a payment twice, and look into the ledger."""
    with chapter(story, "Sending $10, submitted twice because the first answer was lost"):
        ledger = story.place.shared / "ledger"
        ledger.touch()
        ledger.chmod(0o666)
        script = f'echo "$DULY_IDEMPOTENCY_KEY 10.00" >> {ledger}'
        first, second = (
            story.submit("send $10", script, idempotency_key="payment-17") for _ in range(2)
        )
        paid = story.see([first, second])
        entries = ledger.read_text().splitlines()
        story.check("both answers name one task", first, first == second)
        story.check(
            "the money left once",
            f"lines in the ledger: {len(entries)}",
            all_done(paid) and entries == ["payment-17 10.00"],
        )


def disaster(story: Story) -> None:
    """Kill the node in the middle of everything, and see everything end as it should."""
    with chapter(story, "In the middle of all this, the node dies"):
        hopeless = story.submit("hopeless", "echo no such album >&2; exit 3", max_attempts=2)
        loop = story.submit(
            "endless loop", "while :; do :; done", execution_cap="2s", max_attempts=1
        )
        videos = [story.submit(f"video {n}", "sleep 4; echo encoded", share=0.2) for n in (1, 2, 3)]
        story.see(videos, until=lambda tasks: all(task["status"] == "running" for task in tasks))
        killed = story.place.kill_node()
        struck = time.monotonic()
        story.console.print(f"  [red]kill -9[/] of the agent and its processes: {killed} are gone")
        story.see(videos, until=lambda tasks: all(task["attempt"] > 1 for task in tasks))
        again = time.monotonic() - struck
        encoded = story.see(videos)
        whole = time.monotonic() - struck
        story.check(
            "every video that ran is done",
            f"running again after {again:.1f} s, done after {whole:.1f} s",
            all_done(encoded),
        )
        story.check(
            "losing the node cost them no attempt",
            ", ".join(f"{task['losses']} lost, {task['failures']} failed" for task in encoded[:1]),
            all(task["losses"] >= 1 and task["failures"] == 0 for task in encoded),
        )
        capped, dead = story.see([loop, hopeless])
        story.check(
            "the endless loop was stopped at its cap",
            why(capped),
            (capped["status"], capped["outcome"]) == ("failed", "capped"),
        )
        letters = {task["id"]: task for task in story.client.iter_dead_letters()}
        story.check(
            "the hopeless task is in the dead letters after its 2 attempts",
            why(dead),
            dead["id"] in letters and (dead["failures"], dead["exit_code"]) == (2, 3),
        )


@contextmanager
def chapter(story: Story, title: str) -> Iterator[None]:
    """Announce a chapter, and tell how long it took."""
    story.console.print(f"\n[bold]{title}[/]")
    began = time.monotonic()
    yield
    story.console.print(f"  [dim]{time.monotonic() - began:.1f} s[/]")


def summary(story: Story, seconds: float) -> int:
    """Print what held and what did not, and return the exit code."""
    table = Table(title=f"{len(story.checks)} checks in {seconds:.0f} s", title_justify="left")
    table.add_column("promised")
    table.add_column("seen")
    table.add_column("holds")
    for claim, seen, holds in story.checks:
        table.add_row(claim, seen, "[green]yes[/]" if holds else "[red]NO[/]")
    story.console.print()
    story.console.print(table)
    return 0 if all(holds for _, _, holds in story.checks) else 1


def progress(tasks: list[Task]) -> Table:
    """Draw one line for each task."""
    table = Table.grid(padding=(0, 2))
    for task in tasks:
        colour = COLOURS.get(task["status"], "dim")
        tried = f"attempt {task['attempt']}" if task["attempt"] else ""
        table.add_row(f"  {task['name']}", f"[{colour}]{task['status']}[/]", f"[dim]{tried}[/]")
    return table


def told(tasks: list[Task]) -> str:
    """Say how many tasks are where."""
    statuses = [task["status"] for task in tasks]
    return ", ".join(f"{statuses.count(each)} {each}" for each in dict.fromkeys(statuses))


def why(task: Task) -> str:
    """Return the sentence that says why a task is where it is."""
    return task["reason"]["message"] if task["reason"] else task["status"]


def when(task: Task, moment: str) -> datetime:
    """Return one of the task's times; one that has none is at the end of all times."""
    text = dict(task).get(moment)
    return datetime.fromisoformat(str(text or "9999-12-31T00:00:00+00:00"))


def all_ended(tasks: list[Task]) -> bool:
    """Say whether no task has anything before it."""
    return all(task["status"] in FINAL_STATUSES for task in tasks)


def all_done(tasks: list[Task]) -> bool:
    """Say whether every task ended well."""
    return all(task["status"] == "done" for task in tasks)


def _await_node(client: duly.Client) -> float:
    """Return the number of cores, once the node has joined."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        cpu: float = client.status()["capacity"]["cpu"]
        if cpu:
            return cpu
        time.sleep(0.1)
    raise TimeoutError("No node has joined.")


def _too_late(*_: object) -> None:
    raise TimeoutError(f"The story is not over after {HARD_STOP} s.")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
