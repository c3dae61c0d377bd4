"""What the README says to type is typed here, against a Duly of its own."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
THROWAWAY = runpy.run_path(str(ROOT / "scripts" / "throwaway.py"))["Throwaway"]


@pytest.fixture(scope="module")
def place():
    with THROWAWAY({}) as place:
        yield place


def environment(place):
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(place.folder / "home"),
        "LANG": "C.UTF-8",
    }


def run(command, place, **options):
    """Run a command as a user of that Duly, and return what it printed."""
    done = subprocess.run(
        command, env=environment(place), capture_output=True, text=True, timeout=60, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(180)
def test_the_first_task_says_hello(place):
    line = next(block for block in blocks("sh") if "echo hello" in block)
    assert run(line, place, shell=True, cwd=ROOT) == "hello\n"


@pytest.mark.timeout(180)
def test_the_python_example_ends_well(place, tmp_path):
    (example,), (shop,) = blocks("python"), blocks('python title="shop.py"')
    (tmp_path / "shop.py").write_text(shop)
    with subprocess.Popen(
        [Path(sys.executable).with_name("duly"), "worker", "shop:app"],
        env=environment(place),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stdout.readline().startswith("ready: ")
            printed = run([sys.executable, "-c", example], place, cwd=tmp_path)
        finally:
            worker.terminate()
    assert printed == "a.mp4 at 720p\ndone\n"


@pytest.mark.timeout(180)
def test_the_three_commands_that_duly_up_prints_can_be_pasted(place):
    commands = re.findall(r"^\s+(\S*duly (?:run|submit|status).*)$", place.output, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        run(command, place, shell=True)


@pytest.mark.timeout(180)
def test_the_first_graph_goes_as_the_tutorial_tells(place):
    page = (ROOT / "docs" / "tutorial" / "first-graph.md").read_text()
    photo, stolen = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    folder = place.folder / "home"
    (folder / "photo.yaml").write_text(re.sub(r"sleep \d", "true", photo))
    (folder / "stolen.yaml").write_text(stolen)
    run("duly submit -f photo.yaml && duly wait && duly logs", place, shell=True, cwd=folder)
    drawn = run("duly submit -f stolen.yaml --wait; duly graph", place, shell=True, cwd=folder)
    for line in (
        "check-copyright  failed",
        "publish  cancelled",
        "apologise  done",
        "clean-up  done",
    ):
        assert line in drawn
    assert "flowchart" in run("duly graph --output mermaid", place, shell=True, cwd=folder)
    assert run([sys.executable, "-c", example], place) == "done\n{'done': 2}\n"


def test_the_top_names_the_two_commands_that_do_all_the_set_up_and_how_long_they_take():
    (block, *_) = blocks("sh")
    said = re.findall(r"^(make \w+) +# .*minute", block, re.MULTILINE)
    assert said == ["make demo", "make test"]
