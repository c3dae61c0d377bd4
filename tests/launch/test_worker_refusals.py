"""A worker that cannot run anything says so at once, in one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DULY = Path(sys.executable).with_name("duly")
APPS = {
    "empty": "import duly\napp = duly.App('empty')\n",
    "broken": "import duly\napp = duly.App('broken')\nraise RuntimeError('boom')\n",
}


@pytest.mark.parametrize(
    ("app", "refusal"),
    [
        ("empty:app", "duly: empty:app has no tasks. Decorate its functions with @app.task"),
        ("broken:app", "RuntimeError: boom"),
        ("missing:app", "duly: There is no module 'missing' in "),
        ("empty:nope", "duly: empty:nope does not exist. The module has app."),
    ],
)
def test_an_app_without_tasks_is_refused_before_any_server_is_asked(app, refusal, tmp_path):
    for name, source in APPS.items():
        (tmp_path / f"{name}.py").write_text(source)
    done = subprocess.run(
        [DULY, "worker", app, "--url", "http://127.0.0.1:9", "--data", tmp_path / "worker"],
        cwd=tmp_path,
        env=os.environ | {"DULY_KEY": "duly_" + "x" * 43},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert refusal in done.stderr
