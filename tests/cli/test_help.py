import pytest

from tests.cli.test_main import NOWHERE, run


@pytest.mark.parametrize("words", [(), ("submit",), ("schedule",), ("schedule", "create")])
def test_help_shows_what_the_flag_help_shows(words):
    done = run("help", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(*words, "--help").stdout


def test_help_for_an_unknown_command_suggests_a_similar_one():
    done = run("help", "submitt")
    assert (done.returncode, "Did you mean 'submit'" in done.stderr) == (2, True)
    assert run("help", "show", "me").returncode == 2


def test_help_for_an_unknown_command_of_a_group_suggests_a_similar_one():
    done = run("help", "schedule", "creat")
    assert (done.returncode, "Did you mean 'create'" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_completion_without_a_server_offers_nothing_and_says_nothing():
    done = run(
        _DULY_COMPLETE="complete_bash",
        COMP_WORDS="duly node show a",
        COMP_CWORD="3",
        DULY_URL=NOWHERE,
        DULY_KEY="k",
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
