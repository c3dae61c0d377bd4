"""`duly simulate` needs no server, and says what a workload would give."""

import json
import signal
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from tests.cli.test_main import DULY, run
from tests.sim.workloads.test_workload_file import SMALL


@pytest.fixture
def workload(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return file


def test_the_json_of_a_run_has_the_documented_fields(workload):
    done = run("simulate", workload, "--seed", "7", "--output", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["seed"] == 7 and report["policy"] == "duly" and report["tasks"] > 50
    assert set(report["utilisation"]) == {"mean", "peak", "trough"}
    assert set(report["waits"]["small"]) == {"p50", "p95", "p99"}
    assert {"share", "p95_wait"} <= set(report["tenants"]["one"])
    assert {
        "missed_tolerances", "jain", "preemptions", "lives_per_second", "mean_bounded_slowdown",
    } <= set(report)  # fmt: skip


def test_the_same_seed_prints_the_same_figures(workload):
    first, second = (json.loads(run("simulate", workload, "-o", "json").stdout) for _ in range(2))
    first.pop("lives_per_second"), second.pop("lives_per_second")
    assert first == second


def test_policies_and_numbers_of_nodes_are_compared_in_rows(workload):
    done = run("simulate", workload, "--nodes", "1..2", "--policy", "duly,fifo", "-o", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["nodes"], row["policy"]) for row in rows] == [
        (1, "duly"), (1, "fifo"), (2, "duly"), (2, "fifo"),
    ]  # fmt: skip
    table = run("simulate", workload, "--nodes", "1..2").stdout
    assert "SMALL P95" in table and table.count("\nduly") == 2


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_the_row_of_a_run_is_printed_before_the_next_run_ends(workload, output):
    command = [DULY, "simulate", str(workload), "--nodes", "1..1000", "-o", output]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as comparing:
        rows = [comparing.stdout.readline() for _ in range(3 if output == "table" else 1)]
        comparing.kill()
        assert comparing.wait() == -signal.SIGKILL
    assert "SMALL P95" in rows[0] if output == "table" else json.loads(rows[0])["nodes"] == 1
    assert rows[-1].startswith(("duly", "{"))


def test_nodes_are_added_to_those_of_the_workload(workload):
    done = run("simulate", workload, "--nodes", "+1..+2", "-o", "jsonl")
    counts = [json.loads(line)["nodes"] for line in done.stdout.splitlines()]
    nodes = json.loads(run("simulate", workload, "-o", "json").stdout)["nodes"]
    assert counts == [nodes + 1, nodes + 2]


def test_without_a_workload_or_a_history_it_says_what_to_give():
    done = run("simulate")
    assert done.returncode == 2
    assert "Give a workload file, or --history 30d" in done.stderr


def test_the_picture_is_svg(workload, tmp_path):
    picture = tmp_path / "picture.svg"
    done = run("simulate", workload, "--picture", picture)
    assert done.returncode == 0, done.stderr
    root = ElementTree.parse(picture).getroot()
    assert root.tag.endswith("svg")
    texts = [each.text for each in root.iter() if each.tag.endswith("text")]
    assert "Utilisation" in texts and "one" in texts


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--policy", "lifo"], 2, "--policy: there is no policy 'lifo'. Use "),
        (
            ["--nodes", "few"],
            2,
            "--nodes: 'few' is not a number. Give one, a range like 90..110, or -2 for two fewer.",
        ),
        (["--nodes", "9..3"], 2, "--nodes: '9..3' is not a range"),
        (["--nodes", "-9"], 1, "nodes, and 9 fewer leave none."),
        (["--history", "1d"], 2, "--history: give either a workload or --history."),
        (["--tenants", "host"], 2, "--tenants: 'host' is unknown. Use user or group."),
        (["--output", "csv"], 2, "--output: figures are not a list of tasks. Use table or json."),
    ],
)
def test_a_wrong_flag_is_refused(workload, args, code, message):
    done = run("simulate", workload, *args)
    assert (done.returncode, message in done.stderr) == (code, True)


def test_a_wrong_workload_is_refused_with_its_line(workload):
    workload.write_text(SMALL.replace("cpu = 4", "cpus = 4"))
    done = run("simulate", workload)
    assert done.returncode == 1
    assert "line 5: There is no 'cpus' in [[nodes]]; did you mean 'cpu'?" in done.stderr
