"""Objects from the wire, each on its own: one that is not as Kubernetes writes them costs itself, not the list or the watch.

In a list, of such an object only its metadata count, as far as they can be read: a node is then not ready, a pod uses nothing, and a Job
of ours is still there. In a watch, it may be the connection that is at fault, so all is listed anew; an object that was odd before stays
as it was known. What has no name that could be one is passed over.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct

from spillover.clusters.kubernetes.objects import (
    UNREADABLE,
    KubeEvent,
    KubeJob,
    KubeNode,
    ListMeta,
    Meta,
    ObjectChange,
    Page,
    Pod,
    is_object_name,
)

log = structlog.get_logger()

T = TypeVar("T", bound=KubeNode | Pod | KubeJob | KubeEvent)

MOST_TOLD: Final = 1000
"""Odd objects that are remembered, so that each is logged once."""


class _RawPage(Struct, frozen=True):
    """Some objects of a kind, not decoded."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


_RAW_PAGES: Final = msgspec.json.Decoder(_RawPage)
_RAW_CHANGES: Final = msgspec.json.Decoder(ObjectChange[msgspec.Raw])


class Decoding(Generic[T]):
    """How objects of one kind are decoded."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._pages = msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]
        self._changes = msgspec.json.Decoder(ObjectChange[kind])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(kind)
        self._told: set[str] = set()

    def page(self, data: bytes) -> Page[T]:
        """A page of a list; raises one of UNREADABLE if it is no page at all."""
        try:
            return self._pages.decode(data)  # as nearly always
        except UNREADABLE:
            raw = _RAW_PAGES.decode(data)
        items = [found for each in raw.items or () if (found := self._read(bytes(each))) is not None]
        return Page(raw.metadata, tuple(items))

    def change(self, line: bytes) -> ObjectChange[T] | None:
        """A line of a watch; None if what it is about was odd before. Raises one of UNREADABLE if all is to be listed anew."""
        try:
            return self._changes.decode(line)  # as nearly always
        except UNREADABLE:
            raw = _RAW_CHANGES.decode(line)
            meta = _salvaged(bytes(raw.object))
            if _called(meta) not in self._told:
                raise
        if meta is None:
            return None
        return ObjectChange(raw.type if raw.type == "DELETED" else "BOOKMARK", self._kind(metadata=meta))

    def odd(self, name: str, why: object) -> None:
        """Say what is wrong with an object, once."""
        if name in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(name)
        log.warning(
            "an object cannot be read, and is left out", kind=self._kind.__name__, name=name, error=str(why)
        )

    def _read(self, data: bytes) -> T | None:
        """One object, or as much of it as can be read."""
        try:
            return self._one.decode(data)
        except UNREADABLE as error:
            meta = _salvaged(data)
            self.odd(_called(meta), error)
            return None if meta is None else self._kind(metadata=meta)


def _salvaged(data: bytes) -> Meta | None:
    """What can be read of the metadata of an odd object; None if it has no name."""
    try:
        meta = msgspec.json.decode(data, type=dict[str, Any]).get("metadata")
    except UNREADABLE:
        return None
    if not isinstance(meta, dict) or not is_object_name(meta.get("name")):
        return None
    labels = meta.get("labels")
    return Meta(
        meta["name"],
        _text(meta.get("namespace")),
        _text(meta.get("uid")),
        _text(meta.get("resourceVersion")),
        {key: _text(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _called(meta: Meta | None) -> str:
    return "without a name" if meta is None else meta.name
