"""Keeps Kubernetes events that arrive before the objects that they are about."""

from typing import Final

from spillover.clusters.kubernetes.api.objects import KubeEvent
from spillover.clusters.kubernetes.attempts.naming import PREFIX

MOST_NOTES: Final = 4
"""Events to keep for each attempt or object."""
MOST_OBJECTS: Final = 1000
"""Unknown objects to keep events for."""


class Notes:
    """The newest events about unknown objects whose names look like ours."""

    def __init__(self) -> None:
        self._notes: dict[str, tuple[KubeEvent, ...]] = {}
        """By the name of the object, the latest last."""

    def keep(self, note: KubeEvent) -> None:
        """Keep an event until its object is known."""
        name = note.involved_object.name
        if not name.startswith(PREFIX):
            return
        self._notes[name] = noted(self._notes.pop(name, ()), note)
        if len(self._notes) > MOST_OBJECTS:
            del self._notes[next(iter(self._notes))]

    def take(self, name: str) -> tuple[KubeEvent, ...]:
        """Remove and return the events about an object."""
        return self._notes.pop(name, ())


def noted(notes: tuple[KubeEvent, ...], note: KubeEvent) -> tuple[KubeEvent, ...]:
    """Add an event; it replaces its own earlier version."""
    others = [each for each in notes if each.metadata.name != note.metadata.name]
    return (*others, note)[-MOST_NOTES:]
