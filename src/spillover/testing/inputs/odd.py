"""Values that programs are not written for, as strategies of Hypothesis: numbers at edges, text that is no name, JSON of the wrong kind."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

Values = st.SearchStrategy[Any]

UNSIGNED: Final = {32: 2**32 - 1, 64: 2**64 - 1}
"""The largest numbers of so many bits."""


class LongText(str):
    """Text that is told by its length."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self[:1]!r} * {len(self)}"


class LongBytes(bytes):
    """The same of bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{bytes(self[:1])!r} * {len(self)}"


TEXTS: Final = (
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    ".",
    "..",
    "../../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "-rf",
    "%s%n",
    "nan",
    "1e309",
    "-1",
    "true",
    "null",
    "é\u0301",
    "\u202egnp",
    "\ufeff",
    "🦆",
    "\uffff",
    LongText("x" * 300),
    LongText("0" * 64),
    LongText("A" * 64),
    LongText("g" * 64),
    LongText("0" * 63),
)
HUGE: Final = LongText("y" * 200_000)
"""Longer than what anything is named by."""

odd_text: Final = st.one_of(st.sampled_from(TEXTS), st.text(max_size=20))
_EDGES: Final = (0, 1, 2, 1000, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
odd_unsigned: Final = {
    bits: st.one_of(
        st.sampled_from([number for number in _EDGES if number <= most]),
        st.integers(0, most),
    )
    for bits, most in UNSIGNED.items()
}
odd_signed: Final = {
    bits: st.one_of(
        st.sampled_from([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]),
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
    )
    for bits in (32, 64)
}
odd_bytes: Final = st.one_of(
    st.sampled_from([b"", b"\0", LongBytes(b"\xff" * 40), LongBytes(b"x" * 70_000)]), st.binary(max_size=40)
)
odd_number: Final = st.one_of(
    st.sampled_from(
        [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308]
    ),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
odd_plain: Final = st.one_of(st.none(), st.booleans(), odd_number, odd_text)
odd_json: Final = st.recursive(
    odd_plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(odd_text, inner, max_size=3)),
    max_leaves=6,
)


def mutated(value: Any, more: Values = odd_json) -> Values:
    """A plain value of which some part, or nothing, is something else, is missing or is there twice."""
    if isinstance(value, Mapping):
        parts = {str(name): mutated(part, more) for name, part in value.items()}
        whole = st.fixed_dictionaries(parts)
        lacking = st.builds(
            lambda full, gone: {name: part for name, part in full.items() if name != gone},
            whole,
            st.sampled_from([*parts, ""]),
        )
        added = st.builds(lambda full, name, part: {**full, name: part}, whole, odd_text, more)
        return _mostly(whole, lacking, added, more)
    if isinstance(value, list):
        whole_list = st.tuples(*(mutated(part, more) for part in value)).map(list)
        return _mostly(whole_list, whole_list.map(lambda full: full + full), st.just([]), more)
    return _mostly(st.just(value), more)


def _mostly(usual: Values, *others: Values) -> Values:
    """The first in three of four cases, so that not everything is odd at once."""
    return st.integers(0, 3).flatmap(lambda drawn: usual if drawn else st.one_of(*others))


# --- messages of gRPC


def fields_of(kind: Any, special: Mapping[str, Values], depth: int = 4) -> Values:
    """Fields of a message as a dictionary, each odd, usual (`special`, by `Message.field`) or left out; a lease is always there."""
    fields = {
        field.name: _field(field, special, depth)
        for field in kind.fields
        if depth or field.message_type is None
    }
    fields |= {name: special[f"{kind.name}.{name}"] for name in fields if f"{kind.name}.{name}" in special}
    whose = {name: fields.pop(name) for name in ("lease",) if name in fields}
    return st.fixed_dictionaries(whose, optional=fields)


def _field(field: Any, special: Mapping[str, Values], depth: int) -> Values:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields
        return st.dictionaries(_one(key, special, depth), _one(value, special, depth), max_size=3)
    one = _one(field, special, depth)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _one(field: Any, special: Mapping[str, Values], depth: int) -> Values:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            usual = special.get(field.message_type.name)
            return fields_of(field.message_type, special, depth - 1) if usual is None else usual
        case FieldDescriptor.TYPE_UINT32:
            return odd_unsigned[32]
        case FieldDescriptor.TYPE_UINT64:
            return odd_unsigned[64]
        case FieldDescriptor.TYPE_INT32 | FieldDescriptor.TYPE_SINT32:
            return odd_signed[32]
        case FieldDescriptor.TYPE_INT64 | FieldDescriptor.TYPE_SINT64:
            return odd_signed[64]
        case FieldDescriptor.TYPE_ENUM:
            return st.one_of(st.integers(0, 8), odd_signed[32])
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_DOUBLE:
            return st.floats()
        case FieldDescriptor.TYPE_BYTES:
            return odd_bytes
        case _:
            return st.one_of(st.sampled_from([*TEXTS, HUGE]), odd_text.filter(_is_text))


def _is_text(text: str) -> bool:
    """Whether a message can hold it: surrogates are no text of UTF-8."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def filled(message: Message, fields: Mapping[str, Any]) -> Message:
    """A message with these fields."""
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        part = getattr(message, name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            part.update(value)
        elif field.is_repeated:
            if field.message_type is None:
                part.extend(value)
            else:
                for each in value:
                    filled(part.add(), each)
        elif field.message_type is not None:
            part.SetInParent()
            filled(part, value)
        else:
            setattr(message, name, value)
    return message
