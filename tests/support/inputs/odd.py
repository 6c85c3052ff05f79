"""Unexpected values as Hypothesis strategies: numbers at limits, text that is not a name, JSON of the wrong type."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

Values = st.SearchStrategy[Any]

UNSIGNED: Final = {32: 2**32 - 1, 64: 2**64 - 1}
"""The largest numbers by bits."""


class LongText(str):
    """Text with a short repr: its first character and its length."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self[:1]!r} * {len(self)}"


class LongBytes(bytes):
    """Bytes with a short repr: the first byte and the length."""

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
"""Longer than any name."""

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


def mutated(value: Any, texts: Values = odd_text) -> Values:
    """Change a plain value in up to two places, mostly to values of the right type, which pass the first checks.

    `texts` are the replacements for text.
    """
    places = list(_places(value))
    change = st.sampled_from(places).flatmap(
        lambda place: st.tuples(st.just(place), _instead(_at(value, place), texts))
    )
    return st.lists(change, max_size=2).map(lambda changes: _changed(value, changes))


GONE: Final = "$gone"
"""Placeholder for a part that is left out."""


def _places(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths to all parts of a plain value."""
    parts = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, part in parts:
        yield (*way, name)
        yield from _places(part, (*way, name))


def _at(value: Any, way: tuple[str | int, ...]) -> Any:
    for part in way:
        value = value[part]
    return value


def _instead(value: Any, texts: Values) -> Values:
    """Return possible replacements of a part."""
    match value:
        case bool():
            alike: Values = st.booleans()
        case int() | float():
            alike = odd_number
        case str():
            alike = texts
        case list():
            alike = st.sampled_from([[], [*value, *value], value * 50])
        case _:
            alike = st.one_of(
                st.just({}), st.dictionaries(texts, texts, max_size=3).map(lambda more: {**value, **more})
            )
    return st.one_of(alike, alike, alike, st.just(GONE), odd_json)


def _changed(value: Any, changes: Sequence[tuple[tuple[str | int, ...], Any]]) -> Any:
    """Apply changes to a copy of a value, as far as their places still exist."""
    whole = deepcopy(value)
    for way, part in changes:
        try:
            inside = _at(whole, way[:-1])
            if part == GONE:
                del inside[way[-1]]
            else:
                # The part may contain parts of the value itself, which the next change must not affect.
                inside[way[-1]] = deepcopy(part)
        except (KeyError, IndexError, TypeError):
            continue
    return whole


# --- gRPC messages


def fields_of(kind: Any, special: Mapping[str, Values], depth: int = 4) -> Values:
    """Fields of a message as a dictionary, each odd, usual (`special`, by `Message.field`) or missing; keeps leases."""
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
    """Tell whether a message can hold a text; surrogates are not valid UTF-8."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def filled(message: Message, fields: Mapping[str, Any]) -> Message:
    """Fill a message with these fields."""
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
