"""Compares a plain value with a Struct, and lists every difference, where decoding stops at the first.

Runs only after decoding has failed. Returns the valid parts of the value, so that their meaning can be checked as well,
and the user sees all problems at once.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from spillover.forms.problems import MOST_SHOWN, Findings, Path, either, shown

MOST_NAMED: Final = 40
"""Most known words that a message lists."""
_WRONG: Final = object()
"""Marks a value without any valid part."""


def check(kind: type, value: object, found: Findings, path: Path = ()) -> object | None:
    """Add every difference between a value and a type to `found`; return the valid part, or None."""
    right = _look(_type_of(kind), value, path, found)
    return None if right is _WRONG else right


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` for the most similar known word, else a list of the known words."""
    names = list(known)
    folded = {name.lower().replace("-", "_"): name for name in names}
    close = difflib.get_close_matches(word[:64].lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    if close:
        return f"; did you mean `{folded[close[0]]}`?"
    return f"; expected one of {', '.join(names)}" if 0 < len(names) <= MOST_NAMED else ""


@lru_cache(maxsize=64)
def _type_of(kind: type) -> inspect.Type:
    """Return msgspec's description of a type."""
    return inspect.type_info(kind)


def _look(kind: inspect.Type, value: object, path: Path, found: Findings) -> object:
    """Return the valid part of a value, or _WRONG."""
    kind = _bare(kind)
    if isinstance(kind, inspect.UnionType):
        return _union(kind, value, path, found)
    if not _is_kind(kind, value):
        found.add(path, f"must be {_wanted(kind)}, found {_found(value)}{_quotes(kind, value)}")
        return _WRONG
    return _inside(kind, value, path, found)


def _inside(kind: inspect.Type, value: object, path: Path, found: Findings) -> object:
    """Check the content of a value whose kind is right."""
    match kind:
        case inspect.StructType():
            return _struct(kind, value, path, found)
        case inspect.ListType():
            return _list(kind, value, path, found)
        case inspect.DictType():
            return _dict(kind, value, path, found)
        case inspect.LiteralType():
            return _literal(kind, value, path, found)
        case inspect.IntType() | inspect.FloatType():
            return _number(kind, value, path, found)
        case inspect.StrType():
            return _length(kind, value, path, found)
        case inspect.BytesType():
            return _bytes(value, path, found)
    return value


def _union(kind: inspect.UnionType, value: object, path: Path, found: Findings) -> object:
    """Check a value against the alternative of its kind."""
    flat = [_bare(one) for one in kind.types]
    for one in flat:
        if _is_kind(one, value):
            return _inside(one, value, path, found)
    wanted = [_wanted(one) for one in flat if not isinstance(one, inspect.NoneType)]
    text = " or ".join(dict.fromkeys(wanted))
    quotes = next((hint for one in flat if (hint := _quotes(one, value))), "")
    found.add(path, f"must be {text}, found {_found(value)}{quotes}")
    return _WRONG


def _struct(kind: inspect.StructType, value: Any, path: Path, found: Findings) -> object:
    """Check the fields; leave out invalid ones, and return _WRONG if a required one is missing."""
    fields = {field.encode_name: field for field in kind.fields}
    right: dict[str, object] = {}
    whole = True
    for name, item in value.items():
        if name in fields:
            good = _look(fields[name].type, item, (*path, name), found)
            if good is not _WRONG:
                right[name] = good
        elif not isinstance(name, str):
            found.add(path, f"the key {shown(name)} is not text; write it in quotes")
        elif kind.forbid_unknown_fields:
            # Finding similar words is slow: skip it for problems that are not shown.
            hint = nearest(name, fields) if len(found.found) < MOST_SHOWN else ""
            found.add((*path, name), f"unknown field{hint}")
    for name, field in fields.items():
        if field.required and name not in right:
            whole = False
            if name not in value:
                found.add((*path, name), f"is missing{_example(field.type)}")
    return right if whole or not path else _WRONG


def _list(kind: inspect.ListType, value: Any, path: Path, found: Findings) -> object:
    """Check the items; leave out invalid ones."""
    _bounded(kind, value, path, found)
    looked = [_look(kind.item_type, item, (*path, at), found) for at, item in enumerate(value)]
    kept = [at for at, item in enumerate(looked) if item is not _WRONG]
    if len(kept) < len(looked):
        found.kept[path] = kept
    return [looked[at] for at in kept]


def _dict(kind: inspect.DictType, value: Any, path: Path, found: Findings) -> object:
    """Check the values; leave out invalid ones."""
    _bounded(kind, value, path, found)
    right: dict[str, object] = {}
    for name, item in value.items():
        if not isinstance(name, str):
            found.add(path, f"the key {shown(name)} is not text; write it in quotes")
            continue
        good = _look(kind.value_type, item, (*path, name), found)
        if good is not _WRONG:
            right[name] = good
    return right


def _literal(kind: inspect.LiteralType, value: object, path: Path, found: Findings) -> object:
    """Check that a value is one of the allowed words."""
    words = [str(word) for word in kind.values]
    if value in words:
        return value
    hint = nearest(str(value), words) if len(words) > 1 else ""
    found.add(path, f"{shown(value)} must be {either(words)}{hint if 'mean' in hint else ''}")
    return _WRONG


def _number(kind: inspect.IntType | inspect.FloatType, value: Any, path: Path, found: Findings) -> object:
    """Check the bounds of a number."""
    if kind.ge is not None and value < kind.ge:
        found.add(path, f"{shown(value)} is too small; the minimum is {kind.ge}")
    elif kind.le is not None and value > kind.le:
        found.add(path, f"{shown(value)} is too large; the maximum is {kind.le}")
    else:
        return value
    return _WRONG


def _length(kind: inspect.StrType, value: Any, path: Path, found: Findings) -> object:
    """Check the bounds of a text's length."""
    if kind.min_length is not None and len(value) < kind.min_length:
        found.add(path, "must not be empty")
    elif kind.max_length is not None and len(value) > kind.max_length:
        found.add(path, f"has {len(value)} characters; the maximum is {kind.max_length}")
    else:
        return value
    return _WRONG


def _bounded(kind: inspect.ListType | inspect.DictType, value: Any, path: Path, found: Findings) -> None:
    """Check the bounds of the number of items."""
    if kind.min_length is not None and len(value) < kind.min_length:
        least = (
            "must not be empty"
            if not value
            else f"has {len(value)} entries; the minimum is {kind.min_length}"
        )
        found.add(path, least)
    if kind.max_length is not None and len(value) > kind.max_length:
        found.add(path, f"has {len(value)} entries; the maximum is {kind.max_length}")


def _bare(kind: inspect.Type) -> inspect.Type:
    """Return a type without its metadata."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _bytes(value: object, path: Path, found: Findings) -> object:
    """Convert Base64 text to bytes."""
    try:
        return msgspec.convert(value, bytes)
    except msgspec.ValidationError:
        found.add(path, f"{shown(value)} is not valid Base64")
        return _WRONG


def _is_kind(kind: inspect.Type, value: object) -> bool:  # noqa: PLR0911 - one answer for each kind of value
    """Return whether a value is of the kind that a type expects, whatever its content."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.ListType():
            return isinstance(value, list | tuple)
        case inspect.StrType() | inspect.LiteralType():
            return isinstance(value, str)
        case inspect.BytesType():
            return isinstance(value, str | bytes)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.NoneType():
            return value is None
    return True


def _wanted(kind: inspect.Type) -> str:  # noqa: PLR0911 - one answer for each kind of value
    """Describe what a type expects."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return "a mapping"
        case inspect.ListType():
            return "a list"
        case inspect.LiteralType():
            return either([str(word) for word in kind.values])
        case inspect.StrType():
            return "text"
        case inspect.BytesType():
            return "Base64 text"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
    return "nothing"


def _found(value: object) -> str:
    """Describe a value."""
    match value:
        case str():
            return f"the text {shown(value)}"
        case list() | tuple():
            return "a list"
    return shown(value)


def _quotes(kind: inspect.Type, value: object) -> str:
    """Return a hint to put a number in quotes where text is expected."""
    if isinstance(kind, inspect.StrType) and isinstance(value, bool | int | float):
        return f'; write it in quotes: "{shown(value)}"'
    return ""


def _example(kind: inspect.Type) -> str:
    """Return what to write for a missing field that has only one possible value."""
    bare = _bare(kind)
    if isinstance(bare, inspect.LiteralType) and len(bare.values) == 1:
        return f"; write {bare.values[0]}"
    return ""
