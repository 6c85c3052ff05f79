"""Encodes events, records and specs for the journal: MessagePack, each event as an array with its tag.

New fields are only added at the end, with a default, so that newer versions can read what older ones wrote.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from spillover.core.events import AnyEvent
from spillover.core.learned.samples import Sample
from spillover.core.learned.sharing import KeptUsing
from spillover.core.rebuild import AnyRecord, rebuild
from spillover.core.records.clusters import ClusterRecord, Condition
from spillover.core.records.facts import Facts
from spillover.core.records.jobs import Job
from spillover.core.records.machines import PoolRecord, PoolSpend, RentedMachine
from spillover.core.records.money import BudgetPeriod
from spillover.core.records.nodes import Node
from spillover.core.records.policies import PolicyHistory
from spillover.core.state import State
from spillover.model.job import JobSpec, Shape, Terms
from spillover.model.reasons import Reason
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.secrets import SecretRecord
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
    "purse": msgspec.msgpack.Decoder(BudgetPeriod),  # the name in stored checkpoints
    "history": msgspec.msgpack.Decoder(Sample),
    "usage": msgspec.msgpack.Decoder(KeptUsing),
    "policies": msgspec.msgpack.Decoder(PolicyHistory),
    "token": msgspec.msgpack.Decoder(Token),
    "reservation": msgspec.msgpack.Decoder(AdvanceReservation),
    "secret": msgspec.msgpack.Decoder(SecretRecord),
    "machine": msgspec.msgpack.Decoder(RentedMachine),
    "pool": msgspec.msgpack.Decoder(PoolRecord),
    "spend": msgspec.msgpack.Decoder(PoolSpend),
}


def encode_event(event: AnyEvent) -> bytes:
    """Encode an event for the journal."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> AnyEvent:
    """Decode an event of the journal."""
    return _event.decode(data)


def encode_reason(reason: Reason) -> bytes:
    """Encode a reason for the archive."""
    return _encoder.encode(reason)


def decode_reason(data: bytes) -> Reason:
    """Decode a reason of the archive."""
    return _reason.decode(data)


def encode_spec(spec: JobSpec) -> tuple[bytes, bytes]:
    """Return the digest of a spec, and the spec encoded."""
    body = _encoder.encode(spec)
    return hashlib.blake2b(body, digest_size=16).digest(), body


def spec_identity(body: bytes) -> bytes:
    """Return the digest of an encoded spec without defaults that release 0.4 did not know.

    So a job that was submitted under a key before an upgrade is the same job after it.
    """
    plain = msgspec.msgpack.decode(body)
    for name, known, defaults in (("shape", _SHAPE_OF_0_4, _SHAPE), ("terms", _TERMS_OF_0_4, _TERMS)):
        values = plain[name]
        while len(values) > known and values[-1] == defaults[len(values) - 1]:
            values.pop()
    for name in [name for name, value in plain.items() if name not in _SPEC_OF_0_4 and not value]:
        del plain[name]
    for each in (plain["work"], *(group["work"] for group in plain.get("groups", ()))):
        if not each.get("values"):
            each.pop("values", None)
    return hashlib.blake2b(_encoder.encode(plain), digest_size=16).digest()


_SHAPE_OF_0_4: Final = 8
"""Fields of a shape in release 0.4."""
_TERMS_OF_0_4: Final = 8
_SPEC_OF_0_4: Final = frozenset(JobSpec.__struct_fields__) - {
    "groups",
    "hold",
    "throttle",
    "singleton",
    "stdout",
    "stderr",
    "append",
    "signal",
    "signal_before",
    "stdin",
    "keep_state",
    "terminal",
    "environment",
    "taken",
    "secrets",
    "notify",
}
_SHAPE: Final[list[object]] = msgspec.msgpack.decode(_encoder.encode(Shape(Resources())))
_TERMS: Final[list[object]] = msgspec.msgpack.decode(_encoder.encode(Terms()))


def decode_spec(data: bytes) -> JobSpec:
    """Decode a spec."""
    return _spec.decode(data)


def encode_value(value: object) -> bytes:
    """Encode plain data, to compare or hash it."""
    return _encoder.encode(value)


def changed_records(
    state: State, changed: Mapping[str, Iterable[str]]
) -> dict[tuple[str, str], bytes | None]:
    """Encode the records with these keys, by kind; None for records that no longer exist.

    The record of single facts is always included, because it holds sums over all jobs.
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
    """Decode the records of a checkpoint; raise BadRecord."""
    kind = key = ""
    try:
        for kind, key, body in records:  # noqa: B007 - for the message, if a record fails
            yield _records[kind].decode(body)
    except (KeyError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        why = f"there is no such kind: {error}" if isinstance(error, KeyError) else str(error)
        raise BadRecord(f"the record {kind} {key!r}: {why}") from error


def load_state(records: Iterable[tuple[str, str, bytes]]) -> State:
    """Load the state of a checkpoint in one go; raise BadRecord."""
    return rebuild(decode_records(records))
