"""A store in a folder is for the servers alone, or no server starts on it."""

import stat

import pytest

from duly.errors import ConfigError
from duly.launch.store_folder import prepare


def mode_of(folder):
    return stat.S_IMODE(folder.stat().st_mode)


def made(folder, mode, *, is_empty=False):
    folder.mkdir()
    if not is_empty:
        (folder / "logs").mkdir()
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_a_new_one_is_closed_with_all_that_was_missing_above(open_folder, url):
    store = open_folder / "a" / "store"
    prepare(url.format(store))
    assert [mode_of(store), mode_of(store.parent), mode_of(open_folder)] == [0o700, 0o700, 0o755]


def test_an_empty_one_is_closed(open_folder):
    store = made(open_folder / "store", 0o775, is_empty=True)
    prepare(str(store))
    assert mode_of(store) == 0o770


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o777, 0o704])
def test_one_in_use_that_others_can_enter_is_refused_with_the_remedy(open_folder, mode):
    store = made(open_folder / "a store", mode)
    with pytest.raises(ConfigError, match="Every user of this machine") as refused:
        prepare(str(store))
    assert refused.value.message.endswith(f"or run: chmod o-rwx '{store}'")
    assert mode_of(store) == mode


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o770, 0o2770])
def test_one_that_is_shared_with_a_group_at_most_is_used_as_it_is(open_folder, mode):
    store = made(open_folder / "store", mode)
    prepare(str(store))
    assert mode_of(store) == mode


def test_what_nobody_can_come_to_needs_no_other_mode(open_folder):
    store = made(made(open_folder / "closed", 0o700) / "store", 0o755)
    prepare(str(store))
    assert mode_of(store) == 0o755


def test_a_link_does_not_hide_where_it_leads(open_folder):
    store = made(open_folder / "store", 0o755)
    link = made(open_folder / "closed", 0o700) / "link"
    link.symlink_to(store)
    with pytest.raises(ConfigError, match="chmod o-rwx"):
        prepare(str(link))


def test_a_file_is_no_store(open_folder):
    (open_folder / "store").write_text("")
    (open_folder / "store").chmod(0o600)
    with pytest.raises(ConfigError, match="--store"):
        prepare(str(open_folder / "store" / "deeper"))


def test_a_bucket_is_none_of_it():
    prepare("s3://bucket/folder")
