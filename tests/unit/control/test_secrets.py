"""Secrets on a live server: who may set and see them, how they are stored, and what a wrong key does."""

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from spillover.control.secrets.sealing import KeyProblem, draw_key, key_from, seal, unseal
from spillover.control.secrets.vault import Vault
from spillover.model.access import Access
from spillover.model.tokens import TokenRole
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Unwritable
from spillover.ports.secrets import SealedSecret
from spillover.wire.api import SecretRef, SecretRequest
from tests.support.served import Served, served

ADA = Caller(TokenRole.SUBMIT, "t1", user="ada")
KIM = Caller(TokenRole.SUBMIT, "t2", user="kim")
KEEPER = Caller(TokenRole.MAINTAIN, "t3", user="lee", project="vision")
READER = Caller(TokenRole.READ, "t4", project="vision")


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


def request(name: str = "db", value: str | None = "hunter2", **fields: object) -> SecretRequest:
    return SecretRequest(name, **({"project": "vision", "value": value} | fields))  # type: ignore[arg-type]


async def values(inside: Served) -> dict[str, bytes]:
    """Return the values of all secrets, as tasks get them."""
    return {key: await inside.vault.open(each) for key, each in inside.control.loop.state.secrets.items()}


async def refusal(inside: Served, caller: Caller, asked: SecretRequest, user: str = "ada") -> CommandError:
    with pytest.raises(CommandError) as refused:
        await inside.commands.of(caller).set_secret(asked, user)
    return refused.value


async def test_maintainers_and_admins_set_secrets_and_nobody_else(inside: Served) -> None:
    inside.access.access = Access(maintainers={"vision": ("kim",)})
    for caller, user in ((ADMIN, "root"), (KIM, "kim"), (KEEPER, "lee")):
        view = await inside.commands.of(caller).set_secret(request(), user)
        assert (view.project, view.set_by, view.state) == ("vision", user, "usable")
    assert view.version == 3
    for caller, user in ((ADA, "ada"), (ADA, "kim"), (Caller(TokenRole.SUBMIT, "t9"), "kim")):
        error = await refusal(inside, caller, request(), user)
        assert error.kind is ErrorKind.FORBIDDEN
        assert error.message.endswith(
            "only a maintainer of project vision (kim) or an admin may set secrets of project vision"
        )
        with pytest.raises(CommandError, match="may remove secrets"):
            await inside.commands.of(caller).remove_secret(SecretRef("db", "vision"), user)
    error = await refusal(inside, KIM, request(project="film"), "kim")
    assert error.kind is ErrorKind.FORBIDDEN


async def test_a_token_of_a_project_knows_the_secrets_of_no_other(inside: Served) -> None:
    await inside.commands.set_secret(request(project="film"), "root")
    own = await inside.commands.of(KEEPER).set_secret(request(project=None), "lee")
    assert own.project == "vision"
    error = await refusal(inside, KEEPER, request(project="film"), "lee")
    assert error.message == "your token is for project 'vision'; it cannot use secrets of 'film'"
    assert [each.project for each in await inside.commands.of(READER).secrets(None)] == ["vision"]
    assert await inside.commands.of(READER).secrets("film") == []
    assert [each.project for each in await inside.commands.secrets(None)] == ["film", "vision"]
    assert [each.project for each in await inside.commands.secrets("film")] == ["film"]


async def test_only_the_last_value_is_kept_and_it_is_encrypted(inside: Served) -> None:
    store = inside.control.store.secrets
    await inside.commands.set_secret(request(value="hunter2"), "root")
    await inside.commands.set_secret(request(value=None, data=b"\xff\x00"), "root")
    (stored,) = await store.list()
    assert stored.version == 2
    sealed = await store.get("vision", "db", 2)
    assert sealed is not None
    assert b"\xff\x00" not in sealed.body[12:]
    assert await values(inside) == {"vision/db": b"\xff\x00"}
    await inside.commands.remove_secret(SecretRef("db", "vision"), "root")
    assert await store.list() == []
    with pytest.raises(CommandError, match="project vision has no secret db"):
        await inside.commands.remove_secret(SecretRef("db", "vision"), "root")


async def test_users_stay_until_somebody_names_others(inside: Served) -> None:
    asked = inside.commands.set_secret
    assert (await asked(request(users=["bob", "ada", "bob"]), "root")).users == ["ada", "bob"]
    assert (await asked(request(), "root")).users == ["ada", "bob"]
    assert (await asked(request(users=[]), "root")).users == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (request("-"), "name: '-' is not a name"),
        (request(project="a/b"), "project: 'a/b' is not a project"),
        (request(users=["a b"]), "users: 'a b' is not a user"),
        (request(value=""), "value: is empty"),
        (request(value=None), "value: set either `value`"),
        (request(data=b"x"), "value: set either `value`"),
        (request(value="\N{SNOWMAN}" * 30_000), "value: has 90000 bytes; the most is 65536"),
    ],
)
async def test_what_makes_no_sense_is_refused_without_the_value(
    inside: Served, asked: SecretRequest, told: str
) -> None:
    error = await refusal(inside, ADMIN, asked)
    assert error.kind is ErrorKind.INVALID
    assert error.message.startswith(told)
    assert "hunter2" not in repr(asked)


async def test_a_ciphertext_is_valid_for_its_own_secret_only() -> None:
    key = key_from(draw_key())
    sealed = seal(key, "vision", "db", 1, b"hunter2")
    assert unseal([key_from(draw_key()), key], sealed) == b"hunter2"
    for moved in ({"project": "film"}, {"name": "api"}, {"version": 2}):
        fields = {"project": "vision", "name": "db", "version": 1, "key": key.id} | moved
        with pytest.raises(KeyProblem, match="its stored value is damaged"):
            unseal([key], SealedSecret(type(sealed.stored)(**fields), sealed.body))  # type: ignore[arg-type]
    assert seal(key, "vision", "db", 1, b"hunter2").body != sealed.body


async def test_without_its_key_a_secret_is_listed_and_cannot_be_used(inside: Served) -> None:
    await inside.commands.set_secret(request(), "root")
    right, inside.keys.there = inside.keys.there, []
    assert [each.state for each in await inside.commands.secrets(None)] == ["no_key"]
    error = await refusal(inside, ADMIN, request("api"))
    assert error.message == "cannot set secret api: there is no key file secrets.key; restore it"
    inside.keys.there = [key_from(draw_key())]
    (secret,) = inside.control.loop.state.secrets.values()
    with pytest.raises(KeyProblem, match="it needs key"):
        await inside.vault.open(secret)
    with capture_logs() as logs:
        await inside.vault.begin()
    assert [(each["log_level"], each["secrets"]) for each in logs] == [("warning", 1)]
    inside.keys.there = right
    assert await values(inside) == {"vision/db": b"hunter2"}


async def test_rekey_encrypts_everything_with_the_first_key(inside: Served) -> None:
    for name in ("db", "api"):
        await inside.commands.set_secret(request(name), "root")
    (old,) = inside.keys.there
    new = key_from(draw_key())
    inside.keys.there = [new, old]
    await inside.commands.set_secret(request("third"), "root")
    assert (await inside.commands.rekey_secrets()).secrets == 2
    assert (await inside.commands.rekey_secrets()).secrets == 0
    inside.keys.there = [new]
    assert set((await values(inside)).values()) == {b"hunter2"}
    inside.keys.there = [old]
    with pytest.raises(CommandError, match="secret api of project vision: it needs key"):
        await inside.commands.rekey_secrets()


async def test_a_value_whose_event_was_not_written_does_not_count_and_is_swept(inside: Served) -> None:
    await inside.commands.set_secret(request(value="old"), "root")
    inside.journal.fault = "before"
    error = await refusal(inside, ADMIN, request(value="new"))
    assert error.kind is ErrorKind.UNAVAILABLE
    assert await values(inside) == {"vision/db": b"old"}
    assert [each.version for each in await inside.control.store.secrets.list()] == [1, 2]
    await Vault(inside.control.loop, inside.control.store.secrets, inside.keys).begin()
    assert [each.version for each in await inside.control.store.secrets.list()] == [1]


async def test_a_store_that_cannot_be_read_is_told(inside: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise Unwritable("the disk is gone")

    monkeypatch.setattr(inside.control.store.secrets, "list", fail)
    error = await refusal(inside, ADMIN, request())
    assert (error.kind, error.message) == (ErrorKind.UNAVAILABLE, "cannot read the store: the disk is gone")
