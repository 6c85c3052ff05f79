"""Secrets in the journal and the state: names, versions and users, and never a value."""

from spillover.core.events import SecretRemoved, SecretSet
from spillover.core.proposals import Done, Refusal, RefusalKind, RemoveSecret, SetSecret
from spillover.core.rebuild import rebuild
from spillover.model.secrets import SecretRecord
from spillover.policies.loading import load
from spillover.testing.world import World
from spillover.wire.journal import decode_event, encode_event


def put(version: int, users: tuple[str, ...] | None = None, name: str = "db") -> SetSecret:
    return SetSecret("vision", name, version, "kim", users)


def test_a_secret_has_the_version_and_the_users_of_whoever_set_it_last() -> None:
    world = World(load)
    assert world.propose(put(1, ("ada",))) == Done()
    assert world.propose(put(2)) == Done()
    record = world.state.secrets["vision/db"]
    assert (record.version, record.users, record.who) == (2, ("ada",), "kim")
    assert record.is_for("ada")
    assert not record.is_for("bob")
    assert world.propose(put(3, ())) == Done()
    assert world.state.secrets["vision/db"].is_for("bob")


def test_a_version_that_is_not_the_next_is_refused() -> None:
    world = World(load)
    for version in (0, 2):
        reply = world.propose(put(version))
        assert isinstance(reply, Refusal)
        assert reply.kind is RefusalKind.STALE


def test_a_removed_secret_is_gone_and_begins_again() -> None:
    world = World(load)
    world.propose(put(1, ("ada",)))
    assert world.propose(RemoveSecret("vision", "db", "kim")) == Done()
    assert world.state.secrets == {}
    reply = world.propose(RemoveSecret("vision", "db", "kim"))
    assert isinstance(reply, Refusal)
    assert reply.message == "project vision has no secret db; `spill secret ls` lists secrets"
    world.propose(put(1))
    assert world.state.secrets["vision/db"].users == ()


def test_events_of_secrets_say_who_did_what_in_which_project() -> None:
    first = SecretSet("vision", "db", 7, "kim", 1, ("ada", "bob"))
    again, gone = SecretSet("vision", "db", 7, "kim", 2), SecretRemoved("vision", "db", 8, "lee")
    assert str(first) == "kim set secret db of project vision for ada, bob"
    assert str(again) == "kim replaced secret db of project vision"
    assert str(gone) == "lee removed secret db of project vision"
    for event in (first, again, gone):
        assert decode_event(encode_event(event)) == event
        assert event.of_project() == "vision"
    assert (first.caused_by(), gone.caused_by()) == ("kim", "lee")


def test_secrets_come_back_from_a_checkpoint() -> None:
    record = SecretRecord("vision", "db", 3, 7, "kim", ("ada",))
    assert rebuild([record]).secrets == {"vision/db": record}
