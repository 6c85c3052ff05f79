"""Checks requests about secrets, and carries them out. Nobody can read a value back."""

from spillover.control.live.loop import Loop
from spillover.control.requests.projects import DEFAULT
from spillover.control.requests.rights import Rights
from spillover.control.secrets.vault import Vault
from spillover.core.state import State
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.secrets import MOST_SECRET, SecretRecord
from spillover.model.units import format_time
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem, RekeyOutcome, SecretRef, SecretRequest, SecretView


class SecretRequests:
    """What one caller does with secrets."""

    def __init__(self, loop: Loop, vault: Vault, rights: Rights, project: str | None) -> None:
        self._loop = loop
        self._vault = vault
        self._rights = rights
        self._project = project
        """The only project that the caller may see; None means all."""

    async def set(self, request: SecretRequest, who: str) -> SecretView:
        """Set a secret."""
        project = self._project_of(request.project)
        _check_name(request.name)
        value = _value(request)
        users = None if request.users is None else tuple(sorted(set(request.users)))
        for user in users or ():
            if not is_name(user):
                raise _invalid("users", f"{user[:80]!r} is not a user: {NAME_RULE}")
        self._rights.check_secret(project, who, "set")
        record = await self._vault.set(project, request.name, value, users, who)
        return _view(record, usable=True)

    async def remove(self, ref: SecretRef, who: str) -> SecretRef:
        """Remove a secret."""
        project = self._project_of(ref.project)
        self._rights.check_secret(project, who, "remove")
        await self._vault.remove(project, ref.name, who)
        return SecretRef(ref.name, project)

    async def list(self, project: str | None) -> list[SecretView]:
        """Return the secrets that the caller may see, by project and name."""
        state = (await self._loop.read()).state
        usable = await self._vault.usable()
        return [
            _view(each, usable=each.key in usable)
            for each in _sorted(state)
            if self._project in {None, each.project} and project in {None, each.project}
        ]

    async def rekey(self) -> RekeyOutcome:
        """Encrypt all values with the first key."""
        return RekeyOutcome(await self._vault.rekey())

    def _project_of(self, named: str | None) -> str:
        """Return the project of a request; raise CommandError for one that the caller may not use."""
        project = named or self._project or DEFAULT
        if not is_name(project):
            raise _invalid("project", f"{project[:80]!r} is not a project: {NAME_RULE}")
        if self._project not in {None, project}:
            told = f"your token is for project {self._project!r}; it cannot use secrets of {project!r}"
            raise CommandError(ErrorKind.FORBIDDEN, told, [FieldProblem("project", told)])
        return project


def _sorted(state: State) -> list[SecretRecord]:
    return sorted(state.secrets.values(), key=lambda each: (each.project, each.name))


def _view(record: SecretRecord, *, usable: bool) -> SecretView:
    """Return a secret in the form of the API."""
    return SecretView(
        record.name,
        record.project,
        record.version,
        format_time(record.at),
        record.who,
        list(record.users),
        "usable" if usable else "no_key",
    )


def _check_name(name: str) -> None:
    if not is_name(name):
        raise _invalid("name", f"{name[:80]!r} is not a name: {NAME_RULE}")


def _value(request: SecretRequest) -> bytes:
    """Return the value of a secret to set."""
    if (request.value is None) == (request.data is None):
        raise _invalid("value", "set either `value` (text) or `data` (base64)")
    value = request.data if request.value is None else request.value.encode()
    if not value:
        raise _invalid("value", "is empty")
    if len(value) > MOST_SECRET:
        raise _invalid("value", f"has {len(value)} bytes; the most is {MOST_SECRET}")
    return value


def _invalid(path: str, message: str) -> CommandError:
    return CommandError(ErrorKind.INVALID, f"{path}: {message}", [FieldProblem(path, message)])
