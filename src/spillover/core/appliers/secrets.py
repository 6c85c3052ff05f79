"""Applies events of secrets."""

from spillover.core.events import SecretRemoved, SecretSet
from spillover.core.state import State
from spillover.model.secrets import SecretRecord, secret_key


def put(state: State, event: SecretSet) -> None:
    """Add a secret, or its next version."""
    record = SecretRecord(event.project, event.name, event.version, event.at, event.who, event.users)
    state.secrets[record.key] = record
    state.touch_secret(record.key)


def removed(state: State, event: SecretRemoved) -> None:
    """Drop a secret."""
    key = secret_key(event.project, event.name)
    del state.secrets[key]
    state.touch_secret(key)
