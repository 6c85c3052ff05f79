"""Secrets as the state knows them: their names and who may use them. No event and no record has a value."""

from typing import Final

from msgspec import Struct

MOST_SECRET: Final = 64 << 10
"""Most bytes of a value."""
MOST_SECRETS: Final = 10_000
"""Most secrets of a server."""
MOST_USERS: Final = 1000
"""Most users who are named for a secret."""
SECRETS_FOLDER: Final = "SPILL_SECRETS"
"""The variable with the folder of the secret files of a task."""


class SecretRecord(Struct, frozen=True, array_like=True):
    """A secret of a project, without its value."""

    project: str
    name: str
    version: int
    """Rises each time the value is set."""
    at: int
    """When it was last set, nanoseconds UTC."""
    who: str
    users: tuple[str, ...] = ()
    """Whose jobs may use it; empty for all members of the project."""

    @property
    def key(self) -> str:
        """The key of its record."""
        return secret_key(self.project, self.name)

    def is_for(self, user: str) -> bool:
        """Return whether jobs of a user may use it."""
        return not self.users or user in self.users


def secret_key(project: str, name: str) -> str:
    """Return the key of a secret. Neither part has a slash."""
    return f"{project}/{name}"
