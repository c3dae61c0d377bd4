"""The name of the user's timezone: TZ, then /etc/localtime, then /etc/timezone."""

import pytest

from duly.cli.local_timezone import local_timezone


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":America/New_York", "America/New_York"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("", "UTC"),
        ("CET-1CEST", None),
        ("../../etc/passwd", None),
    ],
)
def test_tz_comes_first(root, variable, name):
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/Asia/Kolkata")
    assert local_timezone({"TZ": variable}, root) == name


@pytest.mark.parametrize("folder", ["/usr/share/zoneinfo", "../usr/share/zoneinfo"])
def test_the_link_of_the_system_names_the_timezone(root, folder):
    (root / "etc/localtime").symlink_to(f"{folder}/Asia/Kolkata")
    assert local_timezone({}, root) == "Asia/Kolkata"


def test_debians_file_names_the_timezone_where_localtime_is_a_copy(root):
    (root / "etc/localtime").write_bytes(b"TZif2")
    assert local_timezone({}, root) is None
    (root / "etc/timezone").write_text("Europe/Paris\n")
    assert local_timezone({}, root) == "Europe/Paris"


def test_a_system_without_a_timezone_is_in_utc(root):
    assert local_timezone({}, root) == "UTC"
