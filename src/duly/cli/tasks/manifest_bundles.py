"""`bundle:` in a manifest: files beside it that its tasks bring along."""

from dataclasses import replace
from pathlib import Path

from duly.cli.connect import connect
from duly.cli.manifest import Manifest
from duly.client.shapes import TaskFields
from duly.errors import Invalid


def send_bundles(manifest: Manifest) -> Manifest:
    """Send what the tasks of a file bring along, each folder once, and name it in the requests."""
    if not any(manifest.bundles):
        return manifest
    sent: dict[Path, str] = {}
    tasks: list[TaskFields] = []
    with connect() as client:
        for place, (task, bundle) in enumerate(zip(manifest.tasks, manifest.bundles, strict=True)):
            if bundle is None:
                tasks.append(task)
                continue
            try:
                if bundle not in sent:
                    sent[bundle] = client.upload(bundle)
            except Invalid as error:
                within = "" if manifest.kind == "task" else f"tasks[{place}]."
                raise manifest.explain(Invalid(f"{within}bundle", error.message)) from None
            tasks.append({**task, "artifact": sent[bundle]})
    return replace(manifest, tasks=tasks, bundles=())
