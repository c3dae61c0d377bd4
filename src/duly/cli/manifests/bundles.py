"""`bundle:` in a manifest: uploads the files of its tasks."""

from dataclasses import replace
from pathlib import Path

from duly.cli.connect import connect
from duly.cli.manifests.manifest import Manifest, problem_of
from duly.client.shapes.task_shapes import TaskFields
from duly.errors import Invalid, TooLarge


def upload_bundles(manifest: Manifest) -> Manifest:
    """Upload the bundles of a manifest, each once, and reference them in the tasks."""
    if not any(manifest.bundles):
        return manifest
    uploaded: dict[Path, str] = {}
    tasks: list[TaskFields] = []
    with connect() as client:
        for index, (task, bundle) in enumerate(zip(manifest.tasks, manifest.bundles, strict=True)):
            if bundle is None:
                tasks.append(task)
                continue
            try:
                if bundle not in uploaded:
                    uploaded[bundle] = client.upload(bundle)
            except (Invalid, TooLarge) as error:
                within = "" if manifest.kind == "task" else f"tasks[{index}]."
                raise manifest.explain(Invalid(f"{within}bundle", problem_of(error))) from None
            tasks.append({**task, "artifact": uploaded[bundle]})
    return replace(manifest, tasks=tasks, bundles=())
