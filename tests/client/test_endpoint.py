from pathlib import Path

import pytest

from duly.client.endpoint import config_file, find_endpoint, parse_endpoint
from duly.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_environment_names_the_servers_and_the_key(tmp_path):
    endpoint = find_endpoint(
        {"DULY_URL": "http://a:1/, https://b ,", "DULY_KEY": " k\n"}, tmp_path / "none"
    )
    assert (endpoint.urls, endpoint.key) == (("http://a:1", "https://b"), "k")


def test_the_file_that_duly_up_wrote_is_enough(tmp_path):
    file = write(tmp_path, 'url = "http://127.0.0.1:8470"\nkey = "k"\ndata = "/d"\n')
    endpoint = find_endpoint({}, file)
    assert (endpoint.urls, endpoint.key) == (("http://127.0.0.1:8470",), "k")


def test_the_key_of_the_file_goes_to_no_other_server(tmp_path):
    file = write(tmp_path, 'url = "http://127.0.0.1:8470"\nkey = "k"\n')
    assert find_endpoint({"DULY_URL": "http://elsewhere"}, file).key is None
    assert find_endpoint({"DULY_URL": "http://127.0.0.1:8470/"}, file).key == "k"


def test_without_configuration_one_is_told_how_to_start(tmp_path):
    with pytest.raises(ConfigError, match="duly up"):
        find_endpoint({}, tmp_path / "none")


@pytest.mark.parametrize("text", ["url = ", "url = 3", "\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, text):
    file = write(tmp_path, text)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        find_endpoint({}, file)


@pytest.mark.parametrize(
    "url",
    [
        "",
        " , ",
        "localhost:8470",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://u:p@a",
        "http://[",
        "http://a?x",
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url):
    with pytest.raises(ConfigError):
        parse_endpoint(url)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key):
    with pytest.raises(ConfigError) as caught:
        parse_endpoint("http://a", key)
    assert key not in str(caught.value)


def test_the_key_is_not_shown_by_accident():
    assert "secret" not in repr(parse_endpoint("http://a", "secret"))


def test_the_file_is_where_the_user_keeps_such_files():
    assert config_file({"HOME": "/h"}) == Path("/h/.config/duly/config.toml")
    assert config_file({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/duly/config.toml")


def test_the_certificates_to_trust_come_from_the_environment_unless_they_are_given(monkeypatch):
    monkeypatch.setenv("DULY_CA_FILE", "/etc/ca.pem")
    assert parse_endpoint("https://a", "k").ca_file == Path("/etc/ca.pem")
    assert parse_endpoint("https://a", "k", "/own.pem").ca_file == Path("/own.pem")
