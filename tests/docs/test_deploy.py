"""The units and the container file say what Duly and this repository have."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from duly.launch.signals import INTERRUPTED
from tests.launch.running_up import DULY

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
CONTAINERFILE = (ROOT / "deploy" / "container" / "Containerfile").read_text()


def help_of(*words):
    done = subprocess.run([DULY, *words, "--help"], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_with_options_that_it_has(unit):
    (start,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, command, *arguments = shlex.split(start)
    assert program == "/opt/duly/bin/duly"
    known = help_of(command)
    for flag in (argument for argument in arguments if argument.startswith("--")):
        assert re.search(rf"{flag}\b", known), flag


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_takes_a_stop_by_ctrl_c_for_a_success(unit):
    assert f"SuccessExitStatus={INTERRUPTED}\n" in unit.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_understands(unit, tmp_path):
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/duly/bin/duly", DULY))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_image_is_made_of_files_that_are_there_and_not_ignored():
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert copied and all((ROOT / name).exists() for name in copied)
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{name}" in let_in for name in copied)


def test_the_commands_of_the_image_are_commands_of_duly():
    said = re.findall(r"duly (serve|db migrate) (.*)$", CONTAINERFILE, re.MULTILINE)
    assert [command for command, _ in said] == ["db migrate", "serve"]
    for command, arguments in said:
        known = help_of(*command.split())
        assert all(flag in known for flag in re.findall(r"--[a-z-]+", arguments))
