"""Events of secrets. No event has a value."""

from spillover.core.events.base import Event


class SecretSet(Event, frozen=True, tag="secret_set"):
    """A person set a secret. The value is not in the journal."""

    project: str
    name: str
    at: int
    who: str
    version: int
    """Rises each time the value is set."""
    users: tuple[str, ...] = ()
    """Whose jobs may use it; empty for all members of the project."""

    def of_project(self) -> str | None:
        """See Event."""
        return self.project

    def __str__(self) -> str:
        whom = f" for {', '.join(self.users)}" if self.users else ""
        how = "set" if self.version == 1 else "replaced"
        return f"{self.who} {how} secret {self.name} of project {self.project}{whom}"


class SecretRemoved(Event, frozen=True, tag="secret_removed"):
    """A person removed a secret."""

    project: str
    name: str
    at: int
    who: str

    def of_project(self) -> str | None:
        """See Event."""
        return self.project

    def __str__(self) -> str:
        return f"{self.who} removed secret {self.name} of project {self.project}"
