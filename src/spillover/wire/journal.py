"""Events, records and specs as the journal stores them: MessagePack, each event an array behind its tag.

A field is only ever added at the end with a default, so what an older version wrote is read by every newer one.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from spillover.core.clusters import ClusterRecord, Condition
from spillover.core.events import AnyEvent
from spillover.core.facts import Facts
from spillover.core.jobs import Job
from spillover.core.money import BudgetPeriod
from spillover.core.nodes import Node
from spillover.core.policy_book import PolicyBook
from spillover.core.rebuild import AnyRecord, rebuild
from spillover.core.samples import Sample
from spillover.core.sharing import KeptUsing
from spillover.core.state import State
from spillover.model.job import JobSpec
from spillover.model.reasons import Reason
from spillover.model.tokens import Token

_encoder: Final = msgspec.msgpack.Encoder()
_event: Final[msgspec.msgpack.Decoder[AnyEvent]] = msgspec.msgpack.Decoder(AnyEvent)
_reason: Final[msgspec.msgpack.Decoder[Reason]] = msgspec.msgpack.Decoder(Reason)
_spec: Final = msgspec.msgpack.Decoder(JobSpec)
_records: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    "facts": msgspec.msgpack.Decoder(Facts),
    "job": msgspec.msgpack.Decoder(Job),
    "node": msgspec.msgpack.Decoder(Node),
    "cluster": msgspec.msgpack.Decoder(Condition),
    "life": msgspec.msgpack.Decoder(ClusterRecord),
    "purse": msgspec.msgpack.Decoder(BudgetPeriod),
    "history": msgspec.msgpack.Decoder(Sample),
    "usage": msgspec.msgpack.Decoder(KeptUsing),
    "policies": msgspec.msgpack.Decoder(PolicyBook),
    "token": msgspec.msgpack.Decoder(Token),
}


def encode_event(event: AnyEvent) -> bytes:
    """An event as it is stored."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> AnyEvent:
    """An event as it was stored."""
    return _event.decode(data)


def encode_reason(reason: Reason) -> bytes:
    """A reason as the archive keeps it."""
    return _encoder.encode(reason)


def decode_reason(data: bytes) -> Reason:
    """A reason as the archive kept it."""
    return _reason.decode(data)


def encode_spec(spec: JobSpec) -> tuple[bytes, bytes]:
    """A spec as it is stored, under the digest of its content."""
    body = _encoder.encode(spec)
    return hashlib.blake2b(body, digest_size=16).digest(), body


def decode_spec(data: bytes) -> JobSpec:
    """A spec as it was stored."""
    return _spec.decode(data)


def encode_value(value: object) -> bytes:
    """Plain data, to be compared or digested."""
    return _encoder.encode(value)


def changed_records(
    state: State, changed: Mapping[str, Iterable[str]]
) -> dict[tuple[str, str], bytes | None]:
    """Records of these keys, by their kind, as the state is now; None for those that are gone.

    The single facts go with any other: sums over all jobs are among them.
    """
    records: dict[tuple[str, str], bytes | None] = {}
    for kind, keys in changed.items():
        for key in keys:
            record = state.record(kind, key)
            records[kind, key] = None if record is None else _encoder.encode(record)
    if records:
        records["facts", ""] = _encoder.encode(state.facts.kept)
    return records


class BadRecord(ValueError):
    """A record of a checkpoint that cannot be decoded; the message says which, and why."""


def decode_records(records: Iterable[tuple[str, str, bytes]]) -> Iterator[AnyRecord]:
    """Records of a checkpoint, as they were stored; raises BadRecord."""
    kind = key = ""
    try:
        for kind, key, body in records:  # noqa: B007 - named when one of them fails, which costs the others nothing
            yield _records[kind].decode(body)
    except (KeyError, ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        why = f"there is no such kind: {error}" if isinstance(error, KeyError) else str(error)
        raise BadRecord(f"the record {kind} {key!r}: {why}") from error


def load_state(records: Iterable[tuple[str, str, bytes]]) -> State:
    """The state that a checkpoint holds, at once; raises BadRecord."""
    return rebuild(decode_records(records))
