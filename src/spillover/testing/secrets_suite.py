"""Checks the contract of stores of secrets, for any store."""

import pytest

from spillover.ports.journal import Fenced
from spillover.ports.secrets import SealedSecret, StoredSecret
from spillover.stores.store import Store
from spillover.testing.stores import Opener, lead


def a_secret(
    name: str, version: int = 1, project: str = "vision", body: bytes = b"\x00\xffsealed"
) -> SealedSecret:
    """Return an encrypted secret."""
    return SealedSecret(StoredSecret(project, name, version, "k1"), body)


class SecretsSuite:
    """The contract of `Secrets`."""

    @pytest.fixture
    async def store(self, opener: Opener) -> Store:
        """Open a store and take the lead, with epoch 1."""
        store = await opener()
        assert await lead(store) == 1
        return store

    async def test_versions_come_back_as_they_were_put(self, store: Store, opener: Opener) -> None:
        """To every reader of the same data."""
        first, second, other = a_secret("db"), a_secret("db", 2, body=b""), a_secret("db", project="film")
        for each in (first, second, other):
            await store.secrets.put(each, 1)
        for reader in (store.secrets, (await opener()).secrets):
            assert await reader.get("vision", "db", 1) == first
            assert await reader.get("vision", "db", 2) == second
            assert await reader.get("film", "db", 1) == other
            assert await reader.get("film", "db", 2) is None
            assert await reader.list() == [other.stored, first.stored, second.stored]

    async def test_a_version_can_be_replaced(self, store: Store) -> None:
        """As when it is encrypted with another key."""
        await store.secrets.put(a_secret("db"), 1)
        again = SealedSecret(StoredSecret("vision", "db", 1, "k2"), b"other")
        await store.secrets.put(again, 1)
        assert await store.secrets.get("vision", "db", 1) == again
        assert await store.secrets.list() == [again.stored]

    async def test_only_named_versions_are_forgotten(self, store: Store) -> None:
        """One that is not there does no harm."""
        for version in (1, 2, 3):
            await store.secrets.put(a_secret("db", version), 1)
        await store.secrets.forget(
            [a_secret("db", 1).stored, a_secret("db", 3).stored, a_secret("gone").stored], 1
        )
        assert await store.secrets.list() == [a_secret("db", 2).stored]
        await store.secrets.forget([], 1)
        assert await store.secrets.get("vision", "db", 1) is None

    async def test_an_old_leader_cannot_write(self, store: Store, opener: Opener) -> None:
        """Nor forget anything."""
        await store.secrets.put(a_secret("db"), 1)
        await store.election.resign(1)
        assert await lead(await opener()) == 2
        with pytest.raises(Fenced):
            await store.secrets.put(a_secret("db", 2), 1)
        with pytest.raises(Fenced):
            await store.secrets.forget([a_secret("db").stored], 1)
        assert await store.secrets.list() == [a_secret("db").stored]
