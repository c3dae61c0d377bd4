"""The file by which clients find the Duly of this machine, and whose it is."""

from pathlib import Path

import pytest

from duly.client.endpoint import find_endpoint
from duly.launch.local.user_config import Written, write_user_config

URL, KEY = "http://127.0.0.1:8470", "duly_secret"


def write(home: Path, data: str = "/srv/duly", url: str = URL) -> tuple[Written, str]:
    return write_user_config({"HOME": str(home)}, url=url, key=KEY, data=Path(data))


@pytest.mark.parametrize("data", ["/srv/duly", '/srv/a "b" \\c', "/srv/dülÿ/😀", "/srv/a\tb\nc"])
def test_a_client_finds_what_was_written(tmp_path, data):
    written, file = write(tmp_path, data)
    assert (written, Path(file)) == (Written.WRITTEN, tmp_path / ".config/duly/config.toml")
    assert Path(file).stat().st_mode & 0o777 == 0o600
    endpoint = find_endpoint({"HOME": str(tmp_path)})
    assert (endpoint.urls, endpoint.key) == ((URL,), KEY)
    assert write(tmp_path, data, "http://127.0.0.1:9000")[0] is Written.WRITTEN
    assert find_endpoint({"HOME": str(tmp_path)}).urls == ("http://127.0.0.1:9000",)


@pytest.mark.parametrize(
    "text", ['url = "http://elsewhere:1"\n', 'data = "/srv/other"\n', "no toml at all", "\xff"]
)
def test_a_file_that_is_not_ours_is_left_alone(tmp_path, text):
    file = tmp_path / ".config/duly/config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("latin-1"))
    assert write(tmp_path) == (Written.KEPT, str(file))
    assert file.read_bytes() == text.encode("latin-1")


def test_a_home_that_cannot_be_written_is_told_and_no_error(tmp_path):
    (tmp_path / ".config").write_text("a file where a folder should be")
    assert write(tmp_path)[0] is Written.FAILED
