from hypothesis import given
from hypothesis import strategies as st

from duly.model.tenant import Scope
from duly.policy.grants import grantable, not_grantable

SCOPES = st.frozensets(st.sampled_from(list(Scope)))


def test_an_administrator_gives_everything():
    assert not_grantable(frozenset({Scope.ADMIN}), frozenset(Scope)) == []


def test_a_manager_gives_what_it_has_within_its_tenant():
    manager = frozenset({Scope.MANAGE, Scope.READ, Scope.NODE})
    assert grantable(manager) == {Scope.MANAGE, Scope.READ}
    assert not_grantable(manager, frozenset({Scope.READ, Scope.SUBMIT, Scope.NODE})) == [
        "node",
        "submit",
    ]


def test_whoever_does_not_manage_gives_nothing():
    assert grantable(frozenset({Scope.SUBMIT, Scope.READ, Scope.NODE})) == frozenset()


@given(SCOPES, SCOPES)
def test_nothing_that_is_given_leads_further_than_the_giver(giver, wanted):
    if not not_grantable(giver, wanted):
        assert grantable(wanted) <= grantable(giver)
        assert Scope.ADMIN in giver or wanted <= giver - {Scope.ADMIN, Scope.NODE}
