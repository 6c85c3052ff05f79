"""Keeps the values of secrets: sets, removes and opens them, and encrypts them with another key.

The order keeps the store and the state together. A value is stored before the event that makes its version count. Other
versions are deleted after that, and again at the start of a server, in case one ended in between.
"""

import asyncio
from collections.abc import Sequence

import structlog

from spillover.control.live.loop import Loop
from spillover.control.secrets.sealing import KeyProblem, KeySource, SecretKey, seal, unseal
from spillover.core.proposals import Refusal, RemoveSecret, SetSecret
from spillover.model.secrets import SecretRecord, secret_key
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.ports.journal import StoreError
from spillover.ports.secrets import Secrets

log = structlog.get_logger()


class Vault:
    """The secrets of a server."""

    def __init__(self, loop: Loop, store: Secrets, source: KeySource) -> None:
        self._loop = loop
        self._store = store
        self._source = source
        self._changing = asyncio.Lock()
        """One change at a time, so that each gets a version of its own."""

    async def set(
        self, project: str, name: str, value: bytes, users: tuple[str, ...] | None, who: str
    ) -> SecretRecord:
        """Set a secret; `users` None leaves who may use it as it is."""
        async with self._changing:
            known = (await self._loop.read()).state.secrets.get(secret_key(project, name))
            version = 1 if known is None else known.version + 1
            try:
                key = (await self._keys(create=not await self._store.list()))[0]
            except KeyProblem as error:
                raise CommandError(ErrorKind.CONFLICT, f"cannot set secret {name}: {error}") from None
            except StoreError as error:
                raise CommandError(
                    ErrorKind.UNAVAILABLE, f"cannot read the store: {error}", untouched=True
                ) from None
            try:
                await self._store.put(seal(key, project, name, version, value), self._loop.epoch)
            except StoreError as error:
                told = f"cannot store secret {name}: {error}"
                raise CommandError(ErrorKind.UNAVAILABLE, told, untouched=True) from None
            (reply,) = await self._loop.propose(SetSecret(project, name, version, who, users))
            if isinstance(reply, Refusal):
                raise refused(reply)
            await self._sweep(project, name)
            return self._loop.state.secrets[secret_key(project, name)]

    async def remove(self, project: str, name: str, who: str) -> None:
        """Remove a secret."""
        async with self._changing:
            (reply,) = await self._loop.propose(RemoveSecret(project, name, who))
            if isinstance(reply, Refusal):
                raise refused(reply)
            await self._sweep(project, name)

    async def rekey(self) -> int:
        """Encrypt all values with the first key; return how many had another one."""
        async with self._changing:
            await self._loop.read()
            try:
                keys = await self._keys()
                return await self._rekey(keys)
            except KeyProblem as error:
                raise CommandError(ErrorKind.CONFLICT, str(error)) from None
            except StoreError as error:
                raise CommandError(ErrorKind.UNAVAILABLE, f"cannot reach the store: {error}") from None

    async def _rekey(self, keys: Sequence[SecretKey]) -> int:
        changed = 0
        for stored in await self._store.list():
            if stored.key == keys[0].id:
                continue
            sealed = await self._store.get(stored.project, stored.name, stored.version)
            if sealed is None:
                continue
            try:
                value = unseal(keys, sealed)
            except KeyProblem as error:
                raise KeyProblem(f"secret {stored.name} of project {stored.project}: {error}") from None
            await self._store.put(
                seal(keys[0], stored.project, stored.name, stored.version, value), self._loop.epoch
            )
            changed += 1
        return changed

    async def open(self, secret: SecretRecord) -> bytes:
        """Return the value of a secret; raise KeyProblem or StoreError."""
        sealed = await self._store.get(secret.project, secret.name, secret.version)
        if sealed is None:
            raise KeyProblem("its value is missing from the store; set it again")
        return unseal(await self._keys(), sealed)

    async def usable(self) -> frozenset[str]:
        """Return the secrets whose key the server has, as PROJECT/NAME."""
        secrets = self._loop.state.secrets
        if not secrets:
            return frozenset()
        try:
            known = {key.id for key in await self._keys()}
            stored = await self._store.list()
        except (KeyProblem, StoreError):
            return frozenset()
        found = {(each.project, each.name, each.version) for each in stored if each.key in known}
        return frozenset(
            key for key, each in secrets.items() if (each.project, each.name, each.version) in found
        )

    async def begin(self) -> None:
        """Delete what an earlier server left, and log whether the values can be read. The server runs in any case."""
        try:
            await self._sweep_all()
            stored = await self._store.list()
            if stored:
                known = {key.id for key in await self._keys()}
                if wrong := sum(each.key not in known for each in stored):
                    log.warning(
                        "some secrets cannot be used: the key file does not have their key", secrets=wrong
                    )
        except (KeyProblem, StoreError) as error:
            log.warning("secrets cannot be used", error=str(error))

    async def _keys(self, *, create: bool = False) -> Sequence[SecretKey]:
        """Return the keys. They are read each time, so that a corrected file needs no restart."""
        return await asyncio.to_thread(self._source.keys, create=create)

    async def _sweep_all(self) -> None:
        """Delete all versions that do not count."""
        secrets = self._loop.state.secrets
        versions = {(each.project, each.name, each.version) for each in secrets.values()}
        old = [
            each
            for each in await self._store.list()
            if (each.project, each.name, each.version) not in versions
        ]
        if old:
            await self._store.forget(old, self._loop.epoch)

    async def _sweep(self, project: str, name: str) -> None:
        """Delete the versions of a secret that do not count. If that fails, the next start does it."""
        known = self._loop.state.secrets.get(secret_key(project, name))
        try:
            old = [
                each
                for each in await self._store.list()
                if (each.project, each.name) == (project, name)
                and (known is None or each.version != known.version)
            ]
            if old:
                await self._store.forget(old, self._loop.epoch)
        except StoreError as error:
            log.warning("cannot delete the old value of a secret", secret=name, error=str(error))
