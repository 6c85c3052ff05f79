"""Tokens are journaled by the digest of their secret, end when they are revoked or expire, and own the names of their agents."""

import pytest

from spillover.core.appliers.tokens import REMEMBERED, REMEMBERED_SIGN_IN
from spillover.core.deciders.tokens import MOST_OF_ONE
from spillover.core.events import AgentRegistered, AnyEvent, SignedIn, TokenCreated, TokenRevoked
from spillover.core.proposals import (
    CreateToken,
    Done,
    Refusal,
    RefusalKind,
    Register,
    Registered,
    RevokeToken,
    SignIn,
)
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.tokens import SignInMethod, TokenRole, TokenText, digest_of, read_token
from spillover.model.units import DAY, SECOND
from spillover.policies.loading import load
from spillover.testing.world import World
from spillover.wire.journal import decode_event, encode_event
from tests.support.sameness import Checkpoints, said_by


def create(name: str, role: TokenRole = TokenRole.SUBMIT, **fields: object) -> CreateToken:
    return CreateToken(name, role, digest_of(f"secret of {name}"), "ada", **fields)  # type: ignore[arg-type]


def register(name: str, token: str, *, cluster: str = "onprem", admin: bool = False) -> Register:
    register.count += 1  # type: ignore[attr-defined]
    number = 100 + register.count  # type: ignore[attr-defined]
    return Register(
        ClusterName(cluster), NodeName(name), number, Resources(1000), (), {}, 0, (), token, admin
    )


register.count = 0  # type: ignore[attr-defined]


def tokens_of(events: list[AnyEvent]) -> list[TokenCreated | TokenRevoked]:
    return [event for event in events if isinstance(event, TokenCreated | TokenRevoked)]


def test_a_token_is_taken_apart_as_it_was_put_together_and_anything_else_is_none() -> None:
    text = TokenText("abc", "se_cr-et_")
    assert read_token(str(text)) == text
    assert [read_token(wrong) for wrong in ("", "spt", "spt_", "spt_a", "spt_a_", "x_a_b", "spt__b")] == [
        None
    ] * 7


def test_a_token_opens_with_its_secret_alone() -> None:
    w = World(load)
    assert w.propose(create("t1")) == Done()
    token = w.state.tokens["t1"]
    assert token.opens_with("secret of t1")
    assert not token.opens_with("secret of t2")
    assert not token.opens_with("")


def test_a_token_ends_when_it_is_revoked_and_when_its_time_is_over() -> None:
    w = World(load)
    w.propose(create("t1"))
    w.propose(create("t2", expires=w.now + 5 * SECOND))
    assert w.propose(RevokeToken("t1", "bob")) == Done()
    assert not w.state.tokens["t1"].is_valid(w.now)
    assert w.state.tokens["t1"].revoked_by == "bob"
    assert w.state.tokens["t2"].is_valid(w.now + 5 * SECOND - 1)
    assert not w.state.tokens["t2"].is_valid(w.now + 5 * SECOND)


def test_revoking_twice_is_one_event_and_an_unknown_token_is_refused() -> None:
    w = World(load)
    w.propose(create("t1"))
    w.propose(RevokeToken("t1", "bob"))
    assert w.propose(RevokeToken("t1", "eve")) == Done()
    assert len([event for event in w.events if isinstance(event, TokenRevoked)]) == 1
    refusal = w.propose(RevokeToken("t9", "bob"))
    assert isinstance(refusal, Refusal)
    assert refusal.kind is RefusalKind.UNKNOWN


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (create("t", TokenRole.AGENT, project="p"), "cannot be limited to a project"),
        (create("t", TokenRole.ADMIN, project="p"), "cannot be limited to a project"),
        (create("t", TokenRole.AGENT, user="u"), "cannot have a user"),
        (create("t", cluster="onprem"), "cannot be limited to a cluster"),
        (create("t", expires=5), "is in the past"),
    ],
)
def test_what_a_token_cannot_be_is_refused(wrong: CreateToken, message: str) -> None:
    w = World(load)
    refusal = w.propose(wrong)
    assert isinstance(refusal, Refusal)
    assert message in refusal.message
    assert not w.state.tokens


def test_tokens_are_in_checkpoints_and_old_ones_are_forgotten_there_too() -> None:
    w, checkpoints = World(load), Checkpoints()
    w.propose(create("gone"))
    w.propose(create("stays", project="vision", expires=w.now + 400 * DAY, note="laptop"))
    w.propose(RevokeToken("gone", "ada"))
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
    w.wait(seconds=REMEMBERED // SECOND + 1)
    w.propose(create("new", TokenRole.AGENT, cluster="onprem"))
    assert list(w.state.tokens) == ["stays", "new"]
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)


def test_the_journal_holds_digests_and_no_secrets() -> None:
    w = World(load)
    w.propose(create("t1"))
    w.propose(RevokeToken("t1", "bob"))
    stored = [encode_event(event) for event in tokens_of(w.events)]
    assert len(stored) == 2
    assert not any(b"secret of" in each for each in stored)
    assert [decode_event(each) for each in stored] == tokens_of(w.events)


def test_the_name_of_an_agent_belongs_to_its_token_until_that_ends() -> None:
    w = World(load)
    w.propose(create("t1", TokenRole.AGENT))
    w.propose(create("t2", TokenRole.AGENT))
    assert isinstance(w.propose(register("n1", "t1")), Registered)
    assert isinstance(w.propose(register("n1", "t1")), Registered)
    refusal = w.propose(register("n1", "t2"))
    assert isinstance(refusal, Refusal)
    assert "belongs to an agent with token t1" in refusal.message
    assert isinstance(w.propose(register("n1", "t2", cluster="cloud")), Registered), "names are of a cluster"
    assert isinstance(w.propose(register("n1", "", admin=True)), Registered)
    refusal = w.propose(register("n1", "t1"))
    assert isinstance(refusal, Refusal)
    assert "that the server runs itself" in refusal.message
    assert isinstance(w.propose(register("n2", "t1")), Registered)
    w.propose(RevokeToken("t1", "ada"))
    assert isinstance(w.propose(register("n2", "t2")), Registered)
    (last,) = [event for event in w.events if isinstance(event, AgentRegistered)][-1:]
    assert last.token == w.state.nodes["onprem/n2"].token == "t2"


def sign_in(
    name: str, parent: str = "t1", *, expires: int = 2**62, user: str | None = None, note: str = ""
) -> SignIn:
    digest = digest_of(f"secret of {name}")
    how: SignInMethod = "token" if parent else "oidc"
    return SignIn(name, digest, "ada", TokenRole.SUBMIT, how, expires, parent, user=user, note=note)


def test_a_sign_in_expires_with_its_token_at_the_latest() -> None:
    w = World(load)
    w.propose(create("t1", expires=w.now + 5 * SECOND))
    w.propose(create("t2"))
    assert w.propose(sign_in("s1", expires=w.now + DAY)) == Done()
    assert w.propose(sign_in("s2", expires=w.now + SECOND)) == Done()
    assert w.propose(sign_in("s3", "t2", expires=w.now + DAY)) == Done()
    ends = [w.state.tokens[each].expires for each in ("s1", "s2", "s3")]
    assert ends == [w.now + 5 * SECOND, w.now + SECOND, w.now + DAY]


def test_revoking_a_token_ends_what_came_from_it_and_nothing_else() -> None:
    w = World(load)
    w.propose(create("t1"))
    w.propose(create("t2"))
    for made in (sign_in("s1"), sign_in("s2", "s1"), sign_in("s3", "t2"), sign_in("s4", "", user="ada")):
        assert w.propose(made) == Done()
    w.propose(RevokeToken("t1", "bob"))
    assert [name for name, token in w.state.tokens.items() if token.is_valid(w.now)] == ["t2", "s3", "s4"]
    ended = [event for event in w.events if isinstance(event, TokenRevoked)]
    assert [(event.token, event.who) for event in ended] == [("t1", "bob"), ("s1", "bob"), ("s2", "bob")]
    refusal = w.propose(sign_in("s5"))
    assert isinstance(refusal, Refusal)
    assert refusal.message == "token t1 is no longer valid"


def test_one_sign_in_too_many_ends_the_oldest_of_the_same_token() -> None:
    w = World(load)
    w.propose(create("t1"))
    w.propose(create("t2"))
    w.propose(sign_in("other", "t2"))
    for number in range(MOST_OF_ONE + 2):
        assert w.propose(sign_in(f"s{number}")) == Done()
    assert not w.state.tokens["s0"].is_valid(w.now)
    assert not w.state.tokens["s1"].is_valid(w.now)
    assert w.state.tokens["s2"].is_valid(w.now)
    assert w.state.tokens["other"].is_valid(w.now)
    for number in range(MOST_OF_ONE + 1):
        w.propose(sign_in(f"o{number}", "", user="ada" if number else "bob"))
    assert w.state.tokens["o0"].is_valid(w.now), "of another person"
    assert w.state.tokens["o1"].is_valid(w.now)


def test_sign_ins_that_came_from_one_another_count_together_and_none_ends_its_own_origin() -> None:
    w = World(load)
    w.propose(create("t1"))
    assert w.propose(sign_in("s0")) == Done()
    for number in range(1, MOST_OF_ONE - 1):
        assert w.propose(sign_in(f"s{number}", f"s{number - 1}")) == Done()
    assert w.propose(sign_in("aside")) == Done()
    last = f"s{MOST_OF_ONE - 2}"
    assert w.propose(sign_in("more", last)) == Done()
    assert not w.state.tokens["aside"].is_valid(w.now), "the only one from which the new one did not come"
    assert w.state.tokens["more"].is_valid(w.now)
    assert w.state.tokens["s0"].is_valid(w.now)
    refusal = w.propose(sign_in("too-many", "more"))
    assert isinstance(refusal, Refusal)
    assert refusal.message == "100 sign-ins came from one another, the maximum; sign in with another token"


def test_what_came_from_sign_ins_at_a_provider_counts_for_the_person() -> None:
    w = World(load)
    w.propose(sign_in("laptop", "", user="ada"))
    w.propose(sign_in("phone", "", user="ada"))
    w.propose(sign_in("kim", "", user="kim"))
    w.propose(sign_in("page", "kim", user="kim"))
    for number in range(MOST_OF_ONE - 1):
        assert w.propose(sign_in(f"s{number}", "phone", user="ada")) == Done()
    assert not w.state.tokens["laptop"].is_valid(w.now)
    assert [w.state.tokens[each].is_valid(w.now) for each in ("phone", "kim", "page")] == [True] * 3


def test_sign_ins_are_in_journals_and_checkpoints_without_secrets_and_forgotten_soon() -> None:
    w, checkpoints = World(load), Checkpoints()
    w.propose(create("t1", user="ada"))
    w.propose(sign_in("s1", user="ada", note="Firefox on Linux", expires=w.now + SECOND))
    stored = [encode_event(event) for event in w.events if isinstance(event, SignedIn)]
    assert len(stored) == 1
    assert b"secret of" not in stored[0]
    assert str(decode_event(stored[0])) == "ada signed in (token) with role submit: token s1"
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
    w.wait(seconds=(REMEMBERED_SIGN_IN // SECOND) + 2)
    w.propose(sign_in("s2"))
    assert list(w.state.tokens) == ["t1", "s2"]
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
