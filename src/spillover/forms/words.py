"""Reads single words as values of a form's fields: options of a command line, and environment variables."""

from enum import Enum, auto
from math import isfinite
from typing import Final

from msgspec import Struct, inspect

from spillover.forms.documents import read_documents
from spillover.forms.problems import BadForm

_LONGEST: Final = 30
"""Most characters of a number."""
_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Word(Enum):
    """The value of a field that one word can set."""

    FLAG = auto()
    TEXT = auto()
    WHOLE = auto()
    NUMBER = auto()
    SEVERAL = auto()
    """A list or a mapping, written as spill.yaml has it on one line: `[a, b]` or `{a: 1}`."""


def words_of(form: type[Struct], *, several: bool = False) -> dict[str, Word]:
    """Return the fields of a form that one word can set, by name; with `several`, also lists and mappings."""
    told = inspect.type_info(form)
    fields = told.fields if isinstance(told, inspect.StructType) else ()
    kept = {each.encode_name: _taken(each.type, several=several) for each in fields}
    return {name: each for name, each in kept.items() if each is not None}


def meant(said: str, word: Word) -> object:
    """Return the value of a word; text that does not fit stays text, and the form refuses it."""
    if word is Word.FLAG:
        return _TRUTHS.get(said.lower(), said)
    if word is Word.SEVERAL and said.lstrip().startswith(("[", "{")):
        return _several(said)
    if word is Word.TEXT or len(said) > _LONGEST or "_" in said:
        return said
    try:
        number: float = int(said) if word is Word.WHOLE else float(said)
    except ValueError:
        return said
    return number if isfinite(number) else said


def _several(said: str) -> object:
    """Return a list or a mapping; text that is neither stays text."""
    try:
        (read,) = read_documents(said, "")
    except (BadForm, ValueError):
        return said
    return said if read.problems else read.value


def _taken(kind: inspect.Type, *, several: bool) -> Word | None:
    """Return what one word can mean for a field of this type; None if a value needs several words."""
    types = _bare(kind)
    if any(isinstance(each, inspect.StrType | inspect.LiteralType) for each in types):
        return Word.TEXT
    if several and any(isinstance(each, inspect.ListType | inspect.DictType) for each in types):
        return Word.SEVERAL
    order = ((inspect.BoolType, Word.FLAG), (inspect.FloatType, Word.NUMBER), (inspect.IntType, Word.WHOLE))
    return next((word for each, word in order if any(isinstance(one, each) for one in types)), None)


def _bare(kind: inspect.Type) -> list[inspect.Type]:
    """Return all types that a value may have, without their metadata."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return [found for each in kind.types for found in _bare(each)]
    return [kind]
