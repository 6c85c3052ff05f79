"""What operations of the client want done, as values.

An operation that takes more than one request is written once, as a generator of steps that returns what came of it. Each face of
the client carries steps out in its own way: one blocks, the other awaits.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


class ClientStep(Generic[T]):
    """One thing to be done; in an operation, `yield from step` is what came of it."""

    __slots__ = ()

    def __iter__(self) -> "Flow[T]":
        answer: T = yield self
        return answer


Flow: TypeAlias = Generator[ClientStep[Any], Any, T]
"""An operation that returns a T."""


@dataclass(frozen=True, slots=True)
class Work(ClientStep[T]):
    """Something on this machine that takes a while, such as reading files."""

    do: Callable[[], T]
