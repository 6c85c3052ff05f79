"""Who a person of a provider is here, and what their groups allow."""

from typing import Any

import pytest

from spillover.model.identity import GroupRights, NotAllowed, Oidc, groups_of, person_of, user_of
from spillover.model.tokens import TokenRole

STAFF = GroupRights("staff", TokenRole.READ)
VISION = GroupRights("vision", TokenRole.SUBMIT, "vision")
NLP = GroupRights("nlp", TokenRole.SUBMIT, "nlp")
ALL = GroupRights("everything", TokenRole.SUBMIT)
LEADS = GroupRights("leads", TokenRole.MAINTAIN, "vision")


def settings(*groups: GroupRights, **others: Any) -> Oidc:
    return Oidc("https://login.example.org", "spillover", groups=groups, **others)


@pytest.mark.parametrize(
    ("groups", "role", "project"),
    [
        (["staff"], TokenRole.READ, None),
        (["staff", "nlp"], TokenRole.SUBMIT, "nlp"),
        (["nlp", "vision"], TokenRole.SUBMIT, "vision"),
        (["vision", "everything"], TokenRole.SUBMIT, None),
        (["everything", "leads"], TokenRole.MAINTAIN, "vision"),
    ],
)
def test_the_strongest_role_counts_then_all_projects_then_the_order(
    groups: list[str], role: TokenRole, project: str | None
) -> None:
    given = settings(STAFF, VISION, NLP, ALL, LEADS)
    person = person_of(given, {"preferred_username": "ada", "groups": groups})
    assert (person.user, person.role, person.project) == ("ada", role, project)


@pytest.mark.parametrize(
    ("claims", "domain", "name"),
    [
        ({"preferred_username": "ada"}, None, "ada"),
        ({"preferred_username": "Ada.L-1_x"}, None, "Ada.L-1_x"),
        ({"preferred_username": "ada@example.org"}, "example.org", "ada"),
        ({"preferred_username": "Ada@Example.ORG"}, "Example.org", "ada"),
        ({"preferred_username": "ada@example.org"}, None, "ada_at_example.org"),
        ({"preferred_username": "ada@evil.example"}, "example.org", "ada_at_evil.example"),
        ({"preferred_username": "ada@sub.example.org"}, "example.org", "ada_at_sub.example.org"),
    ],
)
def test_a_claim_becomes_a_name_and_two_addresses_never_the_same(
    claims: dict[str, Any], domain: str | None, name: str
) -> None:
    assert user_of(settings(domain=domain), claims) == name


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({}, "the provider does not tell the claim preferred_username"),
        ({"preferred_username": 7}, "the provider does not tell the claim preferred_username"),
        (
            {"preferred_username": "ada lovelace"},
            "'ada lovelace' (preferred_username) cannot be a user name here",
        ),
        ({"preferred_username": "a" * 64}, "cannot be a user name here"),
        ({"preferred_username": "ada@a@example.org"}, "cannot be a user name here"),
        ({"preferred_username": "ada+x@example.org"}, "cannot be a user name here"),
    ],
)
def test_a_claim_that_is_no_name_is_refused(claims: dict[str, Any], told: str) -> None:
    with pytest.raises(NotAllowed) as refusal:
        user_of(settings(domain="example.org"), claims)
    assert told in str(refusal.value)


def test_an_address_that_is_not_verified_is_refused() -> None:
    by_mail = settings(user_claim="email", domain="example.org")
    assert user_of(by_mail, {"email": "ada@example.org", "email_verified": True}) == "ada"
    assert user_of(by_mail, {"email": "ada@example.org", "email_verified": "true"}) == "ada"
    for said in ({"email_verified": False}, {"email_verified": "false"}, {"email_verified": [True]}, {}):
        with pytest.raises(NotAllowed, match=r"not say that it has verified the address 'ada@example.org'"):
            user_of(by_mail, {"email": "ada@example.org", **said})


def test_groups_may_be_a_text_a_list_or_inside_of_objects() -> None:
    assert groups_of({"groups": ["a", 1, "b"]}, "groups") == ["a", "b"]
    assert groups_of({"groups": "a"}, "groups") == ["a"]
    assert groups_of({"realm_access": {"roles": ["a"]}}, "realm_access.roles") == ["a"]
    assert groups_of({"https://example.org/groups": ["a"]}, "https://example.org/groups") == ["a"]
    for claims in ({}, {"groups": None}, {"groups": 5}, {"groups": {"a": 1}}):
        assert groups_of(claims, "groups.x") == []


def test_a_person_of_many_groups_is_told_some() -> None:
    with pytest.raises(NotAllowed) as refusal:
        person_of(settings(STAFF), {"preferred_username": "ada", "groups": [f"g{n}" for n in range(300)]})
    assert "g19 ..., none of which may use this server" in str(refusal.value)
    with pytest.raises(NotAllowed, match=r"ada is in no group \(groups\) that may use this server"):
        person_of(settings(STAFF), {"preferred_username": "ada"})
