"""The access-control entry that lets one user pass, and nobody else."""

from hypothesis import given
from hypothesis import strategies as st

from duly.store.embedded.system_user import (
    EXECUTE,
    GROUP,
    GROUP_OBJ,
    MASK,
    NO_ID,
    OTHER,
    USER,
    USER_OBJ,
    with_entry,
)

bits = st.integers(0, 7)
ids = st.integers(0, 5)


@st.composite
def lists(draw):
    users, groups = draw(st.dictionaries(ids, bits)), draw(st.dictionaries(ids, bits))
    entries = [(kind, draw(bits), NO_ID) for kind in (USER_OBJ, GROUP_OBJ, OTHER)]
    entries += [(USER, rights, uid) for uid, rights in users.items()]
    entries += [(GROUP, rights, gid) for gid, rights in groups.items()]
    if users or groups:
        entries.append((MASK, draw(bits), NO_ID))
    return sorted(entries)


def effective(entries):
    """What each entry really gives, which is what the mask leaves of it."""
    mask = next((rights for kind, rights, _ in entries if kind == MASK), 7)
    return {
        (kind, whose): rights & mask if kind in (USER, GROUP_OBJ, GROUP) else rights
        for kind, rights, whose in entries
        if kind != MASK
    }


@given(entries=lists(), uid=ids)
def test_one_user_gains_entry_and_nobody_else_gains_or_loses_anything(entries, uid):
    before, after = effective(entries), effective(with_entry(entries, uid))
    assert after.pop((USER, uid)) == before.pop((USER, uid), 0) | EXECUTE
    assert after == before


@given(entries=lists(), uid=ids)
def test_the_list_is_in_the_order_that_the_kernel_wants(entries, uid):
    kinds = [kind for kind, _, _ in with_entry(entries, uid)]
    assert kinds == sorted(kinds)
    assert kinds.count(MASK) == 1


@given(entries=lists(), uid=ids)
def test_granting_twice_is_granting_once(entries, uid):
    once = with_entry(entries, uid)
    assert with_entry(once, uid) == once
