"""Settings: defaults < file < environment, and no silent mistakes."""

from datetime import timedelta

import pytest

from duly.config import Settings, load
from duly.errors import ConfigError


def test_without_any_settings_the_defaults_apply():
    assert load(None, {"PATH": "/bin", "DULY_URL": "http://x"}) == Settings()


def test_the_environment_overrides_the_file(tmp_path):
    file = tmp_path / "duly.toml"
    file.write_text('[leases]\nttl = "20s"\nheartbeat = 2\n[scheduling]\nwindow = 50\n')
    settings = load(file, {"DULY_LEASES__TTL": "30s"})
    assert settings.leases.ttl == timedelta(seconds=30)
    assert settings.leases.heartbeat == timedelta(seconds=2)
    assert settings.scheduling.window == 50


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[leases]\nttll = 1", "there is no setting in [leases] named 'ttll'. Did you mean 'ttl'?"),
        ("[lease]\nttl = 1", "there is no section named 'lease'. Did you mean 'leases'?"),
        ("[leases]\nttl = 'soon'", "not a duration"),
        ("[leases]\nttl = true", "duration"),
        ("[scheduling]\nwindow = 'many'", "scheduling.window"),
        ("leases = 3", "[leases]"),
        ("[leases", "not valid TOML"),
        ("[leases]\nttl = 8", "three times leases.heartbeat"),
        ("[leases]\nterm_ttl = 1", "twice leases.term_renewal"),
        ("[scheduling]\npeak_percent = 60", "It must be at most scheduling.peak_percent"),
        ("[scheduling]\nurgent_headroom = 51", "It must be from 0 to 50."),
        (
            "[leases]\nheartbeat = 0",
            "leases.heartbeat and leases.term_renewal must be more than 0.",
        ),
    ],
)
def test_a_mistake_in_the_file_is_an_error_with_a_suggestion(tmp_path, text, words):
    file = tmp_path / "duly.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        load(file, {})
    assert words in refusal.value.message


def test_a_mistake_in_the_environment_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"DULY_SCHEDULING__WINDWO: .* Did you mean 'window'"):
        load(None, {"DULY_SCHEDULING__WINDWO": "5"})


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="Cannot read"):
        load(tmp_path / "none.toml", {})


def test_an_audit_batch_of_zero_is_refused():
    with pytest.raises(ConfigError, match=r"audit\.batch"):
        load(None, {"DULY_AUDIT__BATCH": "0"})
