import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import duly
from duly.cli.main import COMMANDS, load_command
from tests.cli.imports import HEAVY, imported_by

DULY = Path(sys.executable).with_name("duly")
NOWHERE = "http://127.0.0.1:9"


def run(*args, home="/nonexistent", **environment):
    """Run `duly` in an environment of its own."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
    return subprocess.run(
        [DULY, *args], env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_says_what_its_summary_says(name):
    command = load_command(name, COMMANDS[name])
    first = (command.help or "").strip().split("\n\n")[0].replace("\n", " ")
    assert first == COMMANDS[name].summary


def test_the_help_names_every_command():
    done = run("--help")
    assert done.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in done.stdout] == []


def test_the_version_is_that_of_the_package():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"duly {duly.__version__}\n")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("shwo", "There is no command 'shwo'. Did you mean 'show'? See 'duly --help'."),
        ("--nope", "There is no option '--nope'. See 'duly --help'."),
        (
            "submit --cpp 2 -- true",
            "There is no option '--cpp'. Did you mean --cpu? See 'duly submit --help'.",
        ),
        ("update", "ID is missing. See 'duly update --help'."),
        ("agent", "--url is missing. See 'duly agent --help'."),
        ("show 7 8 9", "Unexpected arguments: 8 9. See 'duly show --help'."),
        ("submit --cap", "--cap needs a value."),
        ("submit --wait=yes -- true", "--wait takes no value."),
        ("show -o xml", "-o: 'xml' is unknown. Use table, json, jsonl, csv or id."),
        ("submit --cpu much -- true", "--cpu: 'much' is not a number."),
        ("submit --attempts two -- true", "--attempts: 'two' is not a whole number."),
        ("list --limit 0", "--limit: 0 is not between 1 and 1000."),
        ("logs --attempt 0", "--attempt: 0 is too small. Use at least 1."),
        ("run --cap 5x -- true", "--cap: '5x' is not a duration. Try 90, 5m or 1h30m."),
        (
            "run --after nope -- true",
            "--after: there is no task 'nope'. Give a task ID from 'duly list'.",
        ),
        ("submit --label x -- true", "--label: 'x' has no '='. Write it like NAME=VALUE."),
        (
            "run --script /nonexistent",
            "--script: '/nonexistent' cannot be read: No such file or directory.",
        ),
        (
            "submit",
            "There is nothing to run. Give a command, such as: duly submit -- echo hello",
        ),
        ("cancel 7 --status waiting", "Give only one of task IDs, a filter and --graph."),
        ("dead replay", "Nothing is selected. Give task IDs, --reason, --since or --all."),
        ("update 7", "There is nothing to change. Give a flag, such as --priority 5."),
        ("help show me", "COMMAND: 'duly show' has no command 'me'."),
        (
            "submit -f a.yaml -f b.yaml",
            "-f: it is given more than once. Submit one file at a time.",
        ),
        ("simulate w.toml --scale-load nan", "--scale-load: 'nan' is not a number. Try 1.5."),
        ("simulate w.toml --nodes 0", "--nodes: a fleet has at least 1 node."),
    ],
)
def test_a_usage_error_ends_with_2_and_is_one_line_that_says_what_is_wrong(args, line):
    done = run(*args.split(), DULY_URL=NOWHERE)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"duly: {line}\n")


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        (["up", "--data", ""], "--data"),
        (["up", "--data="], "--data"),
        (["up", "--store", ""], "--store"),
        (["up", "--config", ""], "--config"),
        (["serve", "--store", ""], "--store"),
        (["agent", "--url", "http://127.0.0.1:1", "--data", ""], "--data"),
        (["run", "--bundle", "", "--", "true"], "--bundle"),
        (["db", "init", "--admin-key-file", ""], "--admin-key-file"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(args, flag, tmp_path):
    done = run(*args, DULY_URL=NOWHERE, HOME=str(tmp_path))
    problem = f"duly: {flag}: it is empty. Give a value, or leave it out.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", problem)


@pytest.mark.parametrize("group", ["", "node", "server"])
def test_a_command_that_needs_another_one_shows_its_help(group):
    done = run(*group.split(), DULY_URL=NOWHERE)
    assert done.returncode == 2
    assert f"Usage: duly {group}".strip() in done.stderr + done.stdout


@pytest.mark.parametrize("group", ["schedule", "db", "node"])
def test_the_help_of_a_group_has_the_summaries_of_its_commands_in_full(group):
    assert "..." not in run(group, "--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["status"], 3),
        (["list"], 3),
        (["submit", "--", "true"], 3),
        (["submit", "--wait", "--", "true"], 125),
        (["run", "--", "true"], 125),
        (["wait", "7"], 125),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_what_to_do(args, code):
    done = run(*args, DULY_URL=NOWHERE, DULY_KEY="k")
    assert done.returncode == code
    assert NOWHERE in done.stderr
    assert "duly up" in done.stderr
    assert done.stdout == ""


def test_without_configuration_one_is_told_how_to_start(tmp_path):
    done = run("status", home=tmp_path)
    assert done.returncode == 1
    assert "duly up" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(shell):
    # Ordinarily the shell is found by looking for it among the processes above.
    done = run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert f"_DULY_COMPLETE=complete_{shell}" in done.stdout


def test_completion_offers_the_commands():
    done = run(_DULY_COMPLETE="complete_bash", COMP_WORDS="duly at", COMP_CWORD="1")
    assert done.stdout.split() == ["attempts"]


def test_looking_for_help_imports_no_command_and_nothing_heavy():
    imported = imported_by(run("--help", PYTHONPROFILEIMPORTTIME="1").stderr)
    ours = {name for name in imported if name.startswith("duly.")}
    assert ours == {"duly.cli", "duly.cli.entry", "duly.cli.main", "duly.errors"}
    assert imported & {*HEAVY, "http.client", "rich", "ssl"} == set()


def test_commands_are_functions_or_groups_of_their_own():
    assert isinstance(load_command("dead", COMMANDS["dead"]), typer.core.TyperGroup)
    assert isinstance(load_command("show", COMMANDS["show"]), typer.core.TyperCommand)
