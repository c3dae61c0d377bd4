"""Files of tasks: what they say, and what is said of their mistakes."""

import pytest

from duly.cli.graphs.graph_text import as_dot, as_mermaid
from duly.cli.manifests.manifest import read_manifest
from duly.cli.manifests.safe_yaml import MAX_ALIASED_VALUES
from duly.errors import Invalid

LAUGHS = "a0: &a0 [x, x, x, x]\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(30)
)


@pytest.fixture
def read(tmp_path):
    def read(text, name="tasks.yaml"):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_manifest(str(file))

    return read


def test_a_graph_in_yaml_means_what_it_says(read):
    found = read(
        """
name: nightly
defaults: &common {tier: regular}
tasks:
  fetch: {<<: *common, tier: basic, command: [sleep, 1.10], env: {PORT: 080, NO: no}}
  report:
    depends_on: [{task: fetch, on: always}, 7251039274172410]
    max_attempts: 2
    run: |
      echo one
      echo two
"""
    )
    assert (found.kind, found.name, found.defaults) == ("graph", "nightly", {"tier": "regular"})
    assert found.tasks == [
        {
            "tier": "basic",
            "command": ["sleep", "1.10"],
            "env": {"PORT": "080", "NO": "no"},
            "ref": "fetch",
        },
        {
            "depends_on": [{"task": "fetch", "on": "always"}, "7251039274172410"],
            "max_attempts": 2,
            "source": "#!/bin/sh -e\necho one\necho two\n",
            "ref": "report",
        },
    ]


def test_a_task_and_a_list_are_manifests_too_also_as_json(read):
    assert read('{"run": "#!/bin/bash\\nx"}').tasks == [{"source": "#!/bin/bash\nx"}]
    several = read('[{"command": ["a"]},\n\t{"command": ["b"]}]', "tasks.json")
    assert (several.kind, len(several.tasks)) == ("tasks", 2)


def test_bundles_lie_beside_the_file_and_are_for_those_with_a_command(read, tmp_path):
    for name in ("job/run.sh", "other/run.sh"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("#!/bin/sh")
        (tmp_path / name).chmod(0o755)
    found = read(
        """
defaults: {bundle: ./job}
tasks:
  a: {command: [./run.sh]}
  b: {command: [./run.sh], bundle: other}
  c: {run: echo}
  d: {command: ["true"], artifact: abc}
"""
    )
    job, other = tmp_path / "job", tmp_path / "other"
    assert list(found.bundles) == [job, other, None, None]
    assert all("bundle" not in task for task in [*found.tasks, found.defaults])
    assert read("{command: [./run.sh], bundle: job}").bundles == [job]
    assert read("- {command: [ls], bundle: job}\n- {command: [ls]}").bundles == [job, None]
    refused = found.explain(Invalid("tasks[1].artifact", "no."))
    assert refused.message.endswith("line 5, column 28: tasks.b.bundle: no.")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "command: [x]\nbundle: nowhere",
            r"line 2, column \d+: bundle: '.*nowhere' does not exist",
        ),
        ("command: [x]\nbundle: [a]", r"line 2, column \d+: bundle: it must be the path"),
        ('{"command": ["x"], "bundle": ""}', "bundle: it must be the path"),
        ("run: x\nbundle: .", r"line 2, column \d+: bundle: it needs a command"),
        (
            "command: [x]\nartifact: a\nbundle: .",
            r"line 3, column \d+: bundle: artifact is given, too",
        ),
        ("command: [./x]\nbundle: .", r"line 1, column \d+: command: './x' is not in"),
        ("command: [./tasks.yaml]\nbundle: .", r"line 1, column \d+: command: .*chmod .x"),
    ],
)
def test_a_bundle_that_is_not_there_or_of_no_use_is_told_of(read, text, told):
    with pytest.raises(Invalid, match=told):
        read(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        ("42", "it is a number"),
        ("tasks: {}", r"line 1, column \d+: tasks: it must contain tasks"),
        ("run: x\nrun: y", r"line 2, column \d+: 'run' occurs twice"),
        ('{"run": "x",\n "run": "y"}', r"line 2, column \d+: 'run' occurs twice"),
        (
            "tasks:\n  a:\n    comand: [x]",
            r"line 3, column \d+: tasks.a.comand: .*Did you mean 'command'",
        ),
        ("- run: x\n- hello", r"line 2, column \d+: \[1\]: a task must be a mapping"),
        ("name: x", "nothing to run"),
        ("run: x\ncommand: [y]", r"line 2, column \d+: command: run is given, too"),
        ("tasks:\n  a: {ref: b, run: x}", r"line 2, column \d+: tasks.a.ref: it must be 'a'"),
        ("run: [", r"line 2, column \d+: this is not YAML"),
        ("- run: x\n\t- run: y", r"line 2, column \d+: this is not YAML: tabs are not allowed"),
        ("name: x\ntask:\n  a: {run: x}", r"line 2, column \d+: task: .*Did you mean 'tasks'\?"),
        ("run: x\n---\nrun: y", r"line 2, column \d+: only one document is allowed"),
        ("!!python/object/apply:os.system [true]", r"line 1, column \d+: the tag"),
        ("run: *a", r"line 1, column \d+: the alias .a has no anchor"),
        ("a: &a [*a]", "no anchor before it"),
        ("[" * 100_000, "nested"),
        ("- " * 100_000, r"line 1, column \d+: it is nested"),
        (LAUGHS, f"aliases add more than {MAX_ALIASED_VALUES}"),
        (b"a: 1\n\xc3\xbc\xff", "line 2, column 2: this is not UTF-8 text"),
        (b"\xff", "line 1, column 1: this is not UTF-8 text"),
        ("a: \x00", "not YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line(read, text, told):
    with pytest.raises(Invalid, match=told):
        read(text)


def test_what_the_server_refuses_is_found_in_the_file(read):
    text = "tasks:\n  a: {run: x}\n  b.c:\n    run: x\n    depends_on:\n    - nope\n"
    refusal = Invalid("tasks[1].depends_on[0]", "tasks[0] is not nope.")
    told = read(text).explain(refusal)
    assert told.message.endswith(
        "tasks.yaml, line 6, column 7: tasks.b.c.depends_on[0]: tasks.a is not nope."
    )
    plain = read(text).explain(Invalid("elsewhere", "a mistake."))
    assert plain.message.endswith("tasks.yaml, line 1, column 1: elsewhere: a mistake.")


def test_a_name_stays_in_its_quotes_in_every_drawing():
    evil = 'x"]; click t1 "javascript:a" \\" ; </b>\x1b[31m'
    part = {"id": "7", "ref": None, "name": evil, "status": "done", "depends_on": []}
    dot, mermaid = "\n".join(as_dot([part])), "\n".join(as_mermaid([part]))
    assert '[label="x\\"]; click t1 \\"javascript:a\\" \\\\\\" ; </b>' in dot
    (line,) = [line for line in mermaid.splitlines() if line.startswith("  t1")]
    assert (line.count('"'), "click" in line, "</b>" in line) == (2, True, False)
    assert "\x1b" not in dot + mermaid
