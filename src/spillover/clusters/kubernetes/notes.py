"""What Kubernetes has noted about objects: it may be heard before the objects are, and is kept until then."""

from typing import Final

from spillover.clusters.kubernetes.naming import PREFIX
from spillover.clusters.kubernetes.objects import KubeEvent

MOST_NOTES: Final = 4
"""Notes that are kept of an attempt, or of an object."""
MOST_OBJECTS: Final = 1000
"""Objects that were not heard of, and of which notes are kept."""


class Notes:
    """Notes about objects that were not heard of yet, or never will be: of those that may be ours, the newest."""

    def __init__(self) -> None:
        self._notes: dict[str, tuple[KubeEvent, ...]] = {}
        """By the name of the object; those noted last are at the end."""

    def keep(self, note: KubeEvent) -> None:
        """Keep a note until it is heard of its object."""
        name = note.involved_object.name
        if not name.startswith(PREFIX):
            return
        self._notes[name] = noted(self._notes.pop(name, ()), note)
        if len(self._notes) > MOST_OBJECTS:
            del self._notes[next(iter(self._notes))]

    def take(self, name: str) -> tuple[KubeEvent, ...]:
        """What was noted about an object, which is not kept any more."""
        return self._notes.pop(name, ())


def noted(notes: tuple[KubeEvent, ...], note: KubeEvent) -> tuple[KubeEvent, ...]:
    """Notes and one more, which stands in the place of what it said before."""
    others = [each for each in notes if each.metadata.name != note.metadata.name]
    return (*others, note)[-MOST_NOTES:]
