"""Replaces parts of the product while a test runs, to plant known bugs."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def instead(where: Any, name: str, what: Any) -> Iterator[None]:
    """Replace an attribute, or the value of a key of a dictionary, for a while."""
    if isinstance(where, dict):
        was = where[name]
        where[name] = what
        try:
            yield
        finally:
            where[name] = was
        return
    was = getattr(where, name)
    setattr(where, name, what)
    try:
        yield
    finally:
        setattr(where, name, was)
