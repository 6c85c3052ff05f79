"""Decodes objects one by one, so that an invalid object does not fail the whole list or watch.

In a list, only the readable metadata of an invalid object count: a node is then not ready, a pod uses nothing, and a
Job of ours still exists. In a watch, the connection may be at fault, so everything is listed again; an object that was
invalid before keeps its last known state. Objects without a valid name are ignored.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct

from spillover.clusters.kubernetes.api.objects import (
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
"""Invalid objects to remember, so that each is logged once."""


class _RawPage(Struct, frozen=True):
    """A page of objects that are not decoded yet."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


_RAW_PAGES: Final = msgspec.json.Decoder(_RawPage)
_RAW_CHANGES: Final = msgspec.json.Decoder(ObjectChange[msgspec.Raw])


class Decoding(Generic[T]):
    """Decodes the objects of one kind."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._pages = msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]
        self._changes = msgspec.json.Decoder(ObjectChange[kind])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(kind)
        self._told: set[str] = set()

    def page(self, data: bytes) -> Page[T]:
        """Decode a page of a list; raise one of UNREADABLE if it is not a page at all."""
        try:
            return self._pages.decode(data)  # the usual case
        except UNREADABLE:
            raw = _RAW_PAGES.decode(data)
        items = [found for each in raw.items or () if (found := self._read(bytes(each))) is not None]
        return Page(raw.metadata, tuple(items))

    def change(self, line: bytes) -> ObjectChange[T] | None:
        """Decode a line of a watch; None if its object has no name. Raise one of UNREADABLE to list all again."""
        try:
            return self._changes.decode(line)  # the usual case
        except UNREADABLE:
            raw = _RAW_CHANGES.decode(line)
            meta = _salvaged(bytes(raw.object))
            if _called(meta) not in self._told:
                raise
        if meta is None:
            return None
        return ObjectChange(raw.type if raw.type == "DELETED" else "BOOKMARK", self._kind(metadata=meta))

    def odd(self, name: str, why: object) -> None:
        """Log once what is wrong with an object."""
        if name in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(name)
        log.warning(
            "ignoring an object that cannot be read", kind=self._kind.__name__, name=name, error=str(why)
        )

    def _read(self, data: bytes) -> T | None:
        """Decode an object, or as much of it as is readable."""
        try:
            return self._one.decode(data)
        except UNREADABLE as error:
            meta = _salvaged(data)
            self.odd(_called(meta), error)
            return None if meta is None else self._kind(metadata=meta)


def _salvaged(data: bytes) -> Meta | None:
    """Return the readable metadata of an invalid object; None if it has no name."""
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
