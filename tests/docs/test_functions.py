"""What the tutorial of functions says to write is written, and run by a real worker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import duly

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-function.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    for name, text in re.findall(
        r'^```python title="(.*?)"\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with duly.testing.server("shop:app", processes=2) as server:
            yield server


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(180)
def test_each_script_prints_what_the_page_says(folder, server):
    assert run(folder, "submit.py") == "a.mp4 at 1080p\nencoding a.mp4\n"
    assert run(folder, "fail.py") == "gave_up - notes.txt is no video\n"
    *videos, published = run(folder, "many.py").splitlines()
    assert sorted(videos) == [f"{name}.mp4 at 720p" for name in "abc"]
    assert published == "2"


WEB = """
import warnings; warnings.simplefilter("ignore")
from fastapi.testclient import TestClient
from shop import encode
from web import web

client = TestClient(web)
task = client.post("/videos", params={"path": "a.mp4"}).json()["task"]
print(encode.handle(task).result(timeout=60))
print(client.get(f"/videos/{task}").json())
"""


@pytest.mark.timeout(180)
def test_the_web_application_answers_with_the_id_and_then_the_status(folder, server):
    assert run(folder, "-c", WEB) == "a.mp4 at 720p\n{'status': 'done'}\n"


def test_the_test_of_the_page_passes(folder):
    assert "1 passed" in run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
