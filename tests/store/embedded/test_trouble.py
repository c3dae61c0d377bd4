"""What is wrong with a folder is told, and nothing that is not ours is touched."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from duly.errors import ConfigError
from duly.private_file import write_private
from duly.store.embedded import embedded_postgres, postmaster
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests.store.embedded.clusters import as_root, ask, server_pid


def test_a_half_made_cluster_is_thrown_away(folder):
    (folder / "postgres.new-x" / "base").mkdir(parents=True)
    (folder / "postgres.new-x" / "PG_VERSION").write_text("18\n")
    write_private(folder / "postgres.new-x.password", "left over")
    assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
    assert list(folder.glob("postgres.new*")) == []


def test_an_initdb_that_a_kill_left_at_work_is_not_in_the_way(folder):
    place = folder / "postgres.new-x" / "base"
    place.mkdir(parents=True)
    write = "i=0; while :; do i=$((i + 1)); mkdir -p $0/$((i % 50)); : > $0/$((i % 50))/$i; done"
    with subprocess.Popen(["sh", "-c", write, str(place)], stderr=subprocess.DEVNULL) as orphan:
        try:
            assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
        finally:
            orphan.kill()


def test_a_cluster_of_another_version_is_left_alone_and_the_way_out_is_told(folder):
    (folder / "postgres").mkdir(parents=True)
    write_private(folder / "postgres.password", "x")
    (folder / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(ConfigError, match=r"made by PostgreSQL 14.*pg_dump 14.*--data"):
        EmbeddedPostgres(folder).start()
    assert [path.name for path in (folder / "postgres").iterdir()] == ["PG_VERSION"]


def test_a_folder_that_is_no_cluster_is_left_alone(folder):
    (folder / "postgres").mkdir(parents=True)
    write_private(folder / "postgres.password", "x")
    (folder / "postgres" / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match="holds no database"):
        EmbeddedPostgres(folder).start()
    assert (folder / "postgres" / "mine.txt").read_text() == "keep"


def test_a_lost_password_is_told_before_anything_is_started(postgres, folder):
    postgres.stop()
    (folder / "postgres.password").unlink()
    with pytest.raises(ConfigError, match=r"postgres\.password is missing"):
        postgres.start()


def test_a_failed_start_shows_the_end_of_the_log(postgres, folder):
    postgres.stop()
    with (folder / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(ConfigError, match="no_such_setting"):
        postgres.start()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--data"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


@as_root
def test_a_full_disk_is_told_and_a_later_start_works(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "duly-test", str(folder)])
    if mounted.returncode != 0:
        pytest.skip("this root may not mount")
    try:
        with pytest.raises(ConfigError, match="No space left on device"):
            EmbeddedPostgres(folder).start()
        subprocess.run(["mount", "-o", "remount,size=200m", str(folder)], check=True)
        postgres = EmbeddedPostgres(folder)
        assert ask(postgres.start(), "select 1") == 1
        postgres.stop()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["a, b 'c' \"d\"", "ü" * 60 + "/" + "x" * 100])
def test_any_folder_name_will_do(tmp_path, name):
    postgres = EmbeddedPostgres(tmp_path / name)
    try:
        assert ask(postgres.start(), "select 1") == 1
    finally:
        postgres.stop()


def test_a_socket_folder_that_another_made_first_is_refused(tmp_path):
    folder = tmp_path / ("x" * 100)
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    sockets = Path(postmaster.read_pid_file(folder / "postgres").socket_folder)
    postgres.stop()
    assert sockets.parent == Path("/tmp") and not sockets.exists()
    sockets.symlink_to(tmp_path)
    try:
        with pytest.raises(ConfigError, match="not a private folder"):
            postgres.start()
    finally:
        sockets.unlink()


def test_a_log_that_grew_too_large_is_cut_while_the_server_runs(postgres, folder, monkeypatch):
    monkeypatch.setattr(embedded_postgres, "MAX_LOG_BYTES", 100)
    before = (folder / "postgres.log").read_text()
    postgres.trim_log()
    assert (folder / "postgres.log.1").read_text() == before
    assert (folder / "postgres.log").read_text() == ""
    os.kill(server_pid(folder), signal.SIGHUP)
    postgres.stop()
    after = (folder / "postgres.log").read_text()
    assert "shut down" in after and not after.startswith("\0")


def test_a_log_is_set_aside_through_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded_postgres, "MAX_LOG_BYTES", 100)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (tmp_path / "postgres.log").write_text("x" * 200)
    (tmp_path / "postgres.log.1").symlink_to(elsewhere)
    EmbeddedPostgres(tmp_path).trim_log()
    assert elsewhere.read_text() == "kept"
    assert (tmp_path / "postgres.log.1").read_text() == "x" * 200
