"""`duly simulate --history` replays what the installation has run."""

from tests.cli.accounts.test_with_server_accounts import answer, ok, refused


def test_the_history_is_replayed_on_the_nodes_of_the_installation(mortal_up):
    server = mortal_up.server
    assert "No task has run in this time" in refused(server, "simulate", "--history", "1h")
    for seconds in ("0", "0.3", "0"):
        ok(server, "run", "--", "sleep", seconds)
    ok(server, "submit", "--in", "1h", "--", "true")
    report = answer(server, "simulate", "--history", "1h")
    assert (report["tasks"], report["nodes"], report["missed_tolerances"]) == (3, 1, 0)
    assert list(report["tenants"]) == ["default"]
    assert report["waits"]["short"]["p99"] < 1
    assert "last 1h" in ok(server, "simulate", "--history", "1h", "--nodes", "+1")
    assert "'soon' is not" in refused(server, "simulate", "--history", "soon")
