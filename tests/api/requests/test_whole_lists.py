"""Pages of lists that are read as a whole."""

import pytest

from duly.api.requests.query import Query
from duly.api.requests.whole_lists import page_of
from duly.errors import Invalid


def ask(items, limit=None, cursor=None, **options):
    given = {"limit": limit, "cursor": cursor}
    query = Query({name: [str(value)] for name, value in given.items() if value is not None})
    page, cursor = page_of(items, query, str, **options)
    return list(page), cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_pages_together_are_the_list(limit):
    items, found, cursor = list("abcdefg"), [], None
    for _ in range(-(-len(items) // limit)):
        page, cursor = ask(items, limit, cursor)
        assert 0 < len(page) <= limit
        found += page
    assert (found, cursor) == (items, None)


def test_an_empty_list_is_one_page():
    assert ask([], 1) == ([], None)


def test_without_a_limit_there_are_fifty_items_or_the_default_of_the_list():
    items = list(range(60))
    assert ask(items)[0] == items[:50]
    assert ask(items, default_limit=10_000) == (items, None)
    assert ask(items, 7, default_limit=10_000)[0] == items[:7]


def test_items_that_come_and_go_elsewhere_neither_repeat_nor_hide_others():
    page, cursor = ask(["b", "d", "f", "h"], 2)
    assert page == ["b", "d"]
    assert ask(["a", "c", "d", "e", "f", "h"], 9, cursor) == (["e", "f", "h"], None)


def test_a_cursor_whose_item_is_gone_is_refused_and_so_is_what_is_no_cursor():
    _, cursor = ask(["a", "b"], 1)
    for wrong, words in ((cursor, "Start anew"), ("?", "is not the"), ("/w", "is not the")):
        with pytest.raises(Invalid, match=words) as caught:
            ask(["b"], 1, wrong)
        assert caught.value.field == "cursor"
