"""Every mistake in a manifest is told with its file, line and column, whoever finds it."""

import pytest

GRAPH = """\
name: nightly
defaults: {tier: basic}
tasks:
  fetch:
    run: echo
  report:
    run: echo
    depends_on:
    - fetch
"""


def at(text, words, at=None):
    """Return a case: a manifest with `^` before the mistake, and what is said of it."""
    clean = text.replace("^", "", 1)
    before = text[: text.index("^")] if at is None else at
    line = before.count("\n") + 1
    column = len(before.rpartition("\n")[2]) + 1
    return pytest.param(clean, line, column, words, id=f"{words[:40]} {clean[:20]!r}")


FOUND_HERE = [
    at("run: [x\n^", "this is not YAML: did not find expected ',' or ']'"),
    at("tasks:\n  a: {run: x\n  b^: {run: x}\n", "this is not YAML"),
    at("- run: x\n^\t- run: y", "tabs are not allowed"),
    at("run: x\nname: a^\x01b\n", "this is not YAML: the character '\\x01' is not allowed"),
    at("^", "it is empty"),
    at("# nothing\n^", "it is empty", at=""),
    at("^42", "it is a number"),
    at("\n\n^name: x\n", "there is nothing to run"),
    at("run: x\n^comand: [x]\n", "comand: a task has no such field. Did you mean 'command'?"),
    at(GRAPH + "^task: {}\n", "task: a graph has no such field. Did you mean 'tasks'?"),
    at(GRAPH.replace("    run: echo\n  rep", "    ^rnu: echo\n  rep"), "Did you mean 'run'?"),
    at("tasks:\n- run: x\n- ^hello\n", "tasks[1]: a task must be a mapping of its fields"),
    at("run: x\n^run: y\n", "'run' occurs twice"),
    at("tasks: {a: {run: x, ^run: y}}\n", "'run' occurs twice"),
    at("a: &x [y]\nrun: ^*z\n", "the alias *z has no anchor"),
    at("^!!python/object:os.system x\n", "the tag"),
    at("run: x\n^---\nrun: y\n", "only one document is allowed"),
]
FOUND_BY_THE_SERVER = [
    at(GRAPH + "    ^max_attempts: many\n", "tasks.report.max_attempts: it must be a whole number"),
    at("run: x\nresources:\n  cpu: 1\n  ^memroy: 1GiB\n", "Did you mean 'memory'?"),
    at(GRAPH + "    resources: {cpu: 1, ^cpus: 2}\n", "Did you mean 'cpu'?"),
    at("^command: ls\n", "command: it must be a list, not text"),
    at("- run: x\n- run: x\n  ^env: [a]\n", "[1].env: it must be an object, not a list."),
    at(GRAPH + "    ^execution_cap: 5 bananas\n", "execution_cap: '5 bananas' is not a"),
    at(GRAPH.replace("{tier", "{^execution_cap: soon, tier"), "execution_cap: 'soon' is not a"),
    at(GRAPH.replace("{tier", "{^tier").replace("basic", "huge"), "tier: there is no tier 'huge'"),
    at(GRAPH.replace("{tier: basic}", "{^ref: x}"), "defaults.ref: it cannot be a default."),
    at(GRAPH + "    - ^nobody\n", "tasks.report.depends_on[1]: no task of this request has"),
    at(GRAPH + "    - ^{task: nobody}\n", "no task of this request has the ref 'nobody'"),
    at(GRAPH + "    - ^fetch\n", "tasks.report.depends_on[1]: 'fetch' is named twice."),
    at(GRAPH + "    - ^'12345'\n", "depends_on[1]: there is no task '12345'."),
    at(GRAPH + "    - {task: fetch2, ^on: sometimes}\n", "'sometimes' is unknown. Use success"),
    at(
        GRAPH.replace("    run: echo\n  rep", "    ^depends_on: [report]\n    run: echo\n  rep"),
        "these tasks depend on each other, so none of them could start: fetch → report → fetch.",
    ),
    at("tasks:\n  a:\n    run: x\n    ^depends_on: [a]\n", "a task depends on itself"),
    at("tasks:\n  a: {run: x, depends_on: [^b]}\n", "no task of this request has the ref 'b'"),
    at("- run: x\n  depends_on: [^b]\n", "[0].depends_on[0]: no task of this request"),
    at("run: x\ndepends_on: [^b]\n", "depends_on[0]: no task of this request has the ref 'b'"),
    at("run: x\ndepends_on: [^'12345']\n", "depends_on[0]: there is no task '12345'."),
    at("- {ref: a, run: x}\n- {^ref: a, run: x}\n", "[1].ref: [0] has the ref 'a' already."),
    at("tasks:\n- {ref: a, run: x}\n- ^run: x\n", "tasks[1].ref: it is missing."),
    at("tasks:\n  ^a b: {run: x}\n", "'a b' is not a valid ref. Use at most 100"),
    at("- command: [x]\n  ^artifact: " + "0" * 64 + "\n- run: x\n", "there is no artifact '0000"),
    at(
        "- {ref: b, depends_on: [a], run: x, unique: {key: k}}\n"
        "- {ref: a, run: x, unique: {^key: k}}\n",
        "[1].unique.key: [0] has the unique key 'k', too.",
    ),
    at("run: x\n^run_at: tomorrow\n", "run_at"),
    at("run: x\nretry: {^delay: never}\n", "delay"),
    at("name: x\n^run: |\n  " + "x" * 1_100_000 + "\n", "run: it has 1100014 bytes"),
    at("tasks:\n  a: &a {run: x}\n  b: {<<: *a, ^priority: lots}\n", "b.priority: it must be"),
    at("^name: ''\ntasks: {a: {run: x}}\n", "name: it has 0 characters. Use 1 to"),
]  # fmt: skip


JSON = """{"tasks": {
\t"a": {"run": "x"},
\t"b": {"command": ["echo", "\\ud83d\\ude00 {[,:"],
\t\t"resources": {"cpu": 1, ^"memory": "much"}}
}}"""
AS_JSON = [
    at(JSON, "memory"),
    at(JSON.replace("^", "").replace('"command"', '^"comand"'), "Did you mean 'command'?"),
    at(JSON.replace("^", "").replace('"run": "x"', '"run": "x", ^"run": "y"'), "occurs twice"),
    at(JSON.replace("^", "").replace('"b": {"command"', '"b": "command"^'), "this is not JSON"),
    at('[{"run": "x"},\n {^"run": 7}]', "it must be the text of a script"),
    at("[" * 50 + "^" + "[" * 100_000, "nested"),
]


def submit(server, folder, text, name="tasks.yaml"):
    file = folder / name
    file.write_text(text)
    return file, server.duly("submit", "-f", str(file))


@pytest.mark.parametrize(("text", "line", "column", "words"), FOUND_HERE)
def test_a_mistake_that_the_command_finds_is_told_with_its_place(
    server, tmp_path, text, line, column, words
):
    file, done = submit(server, tmp_path, text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"duly: {file}, line {line}, column {column}: "), done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(("text", "line", "column", "words"), FOUND_BY_THE_SERVER)
def test_a_mistake_that_the_server_finds_is_told_with_its_place(
    server, tmp_path, text, line, column, words
):
    file, done = submit(server, tmp_path, text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"duly: {file}, line {line}, column {column}: "), done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(("text", "line", "column", "words"), AS_JSON)
def test_a_mistake_in_json_is_told_with_its_place(server, tmp_path, text, line, column, words):
    file, done = submit(server, tmp_path, text, "tasks.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"duly: {file}, line {line}, column {column}: "), done.stderr
    assert words in done.stderr


IN_A_SCHEDULE = [
    at("run: x\n^run_at: '2100-01-01T00:00:00Z'\n", "run_at: a schedule cannot have it"),
    at("run: x\nresources:\n  ^cpus: 1\n", "Did you mean 'cpu'?"),
    at(GRAPH + "    - ^nobody\n", "tasks.report.depends_on[1]: no task of this request has"),
    at(GRAPH + "    - ^'12345'\n", "tasks.report.depends_on[1]: 12345 is an existing task."),
    at(GRAPH + "    ^priority: lots\n", "tasks.report.priority: it must be a whole number"),
    at(
        GRAPH.replace("{tier", "{^tier").replace("basic", "huge"),
        "tier: there is no tier 'huge'",
    ),
    at(
        GRAPH.replace("    run: echo\n  rep", "    ^depends_on: [report]\n    run: echo\n  rep"),
        "these tasks depend on each other, so none of them could start: fetch → report → fetch.",
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), IN_A_SCHEDULE)
def test_a_mistake_in_the_file_of_a_schedule_is_told_with_its_place(
    server, tmp_path, text, line, column, words
):
    file = tmp_path / "nightly.yaml"
    file.write_text(text)
    done = server.duly("schedule", "create", "--daily", "06:30", "-f", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"duly: {file}, line {line}, column {column}: "), done.stderr
    assert words in done.stderr


def test_a_mistake_in_standard_input_is_told_with_its_place(server):
    done = server.duly("submit", "-f", "-", input="run: x\npriority: lots\n")
    assert done.stderr.startswith("duly: standard input, line 2, column 1: priority: it must be")


def test_a_task_that_is_too_large_is_named(server, tmp_path):
    long = ", ".join(["x"] * 60_000)
    text = f"- run: x\n- command: [echo, {long}]\n"
    file, done = submit(server, tmp_path, text)
    assert done.stderr.startswith(f"duly: {file}, line 2, column 3: A task has more than")


def test_a_mistake_in_a_flag_is_not_said_to_be_in_the_file(server, tmp_path):
    file = tmp_path / "task.yaml"
    file.write_text("run: x\n")
    done = server.duly("submit", "-f", str(file), "--idempotency-key", "x" * 300)
    assert (done.returncode, "task.yaml" in done.stderr) == (1, False)
