"""A worker is told what is wrong with the app that it is to run."""

import sys

import pytest

from duly.client.functions.loading import load_app
from duly.errors import ConfigError
from tests.client.functions import shop


def test_an_app_is_found_by_module_and_name():
    assert load_app("tests.client.functions.shop:app") is shop.app


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("shop", "'shop' names no app. Write it like shop.tasks:app."),
        ("no_such_module:app", "There is no module 'no_such_module' in "),
        ("tests.no_such_module:app", "There is no module 'tests.no_such_module' in "),
        ("tests.client.functions.shop:application", "does not exist. The module has app."),
        ("tests.client.functions.shop:encode", "is no duly.App. The module has app."),
    ],
)
def test_a_path_that_leads_to_no_app_is_explained(path, words):
    with pytest.raises(ConfigError) as refused:
        load_app(path)
    assert words in refused.value.message


def test_an_error_of_the_module_is_shown_with_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "broken_shop.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ConfigError, match="no_such_library") as refused:
        load_app("broken_shop:app")
    assert "The module 'broken_shop' cannot be imported" in refused.value.message
    assert 'broken_shop.py", line 1' in refused.value.message
