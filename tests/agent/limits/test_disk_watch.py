"""Whose folder is measured next, when there are more than can be measured at once."""

from duly.agent.limits import disk_watch
from duly.agent.limits.disk_watch import DiskWatch, WatchedFolder, order_round_robin

ONE, TWO = 1, 2


def test_tenants_take_turns_and_who_has_waited_longest_is_first():
    many = [WatchedFolder(n, f"/{n}", 1, ONE) for n in range(3)]
    single = WatchedFolder(9, "/9", 1, TWO)
    next_at = {0: 3.0, 1: 1.0, 2: 2.0, 9: 4.0}
    assert order_round_robin([*many, single], next_at, {ONE: 5.0}) == [
        single,
        many[1],
        many[2],
        many[0],
    ]
    served = {ONE: 5.0, TWO: 6.0}
    assert order_round_robin([*many, single], next_at, served) == [
        many[1],
        single,
        many[2],
        many[0],
    ]


async def test_many_folders_of_a_tenant_keep_no_other_one_unmeasured(tmp_path, monkeypatch):
    # No time for more than one folder in a pass.
    monkeypatch.setattr(disk_watch, "MAX_PASS_SECONDS", 0.0)
    monkeypatch.setattr(disk_watch, "MAX_TIME_SHARE", float("inf"))
    folders = [
        WatchedFolder(n, str(tmp_path / str(n)), 1, ONE if n < 20 else TWO) for n in range(21)
    ]
    for folder in folders:
        (tmp_path / str(folder.attempt)).mkdir()
        (tmp_path / str(folder.attempt) / "file").write_bytes(b"more than a byte")
    measured = []
    watch = DiskWatch(lambda: folders, lambda attempt, _: measured.append(attempt))
    assert await watch.measure_due()  # All are new.
    for _ in range(4):
        assert not await watch.measure_due()
    assert len(measured) == 4
    assert measured.count(20) == 2
    assert len(set(measured)) == 3
