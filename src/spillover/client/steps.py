"""Steps of client operations, as values.

An operation of several requests is a generator of steps that returns the result. It is written once. Each client runs
the steps in its own way: one blocks, the other awaits.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


class ClientStep(Generic[T]):
    """One step of an operation; `yield from step` gives its result."""

    __slots__ = ()

    def __iter__(self) -> "Flow[T]":
        answer: T = yield self
        return answer


Flow: TypeAlias = Generator[ClientStep[Any], Any, T]
"""An operation that returns a T."""


@dataclass(frozen=True, slots=True)
class Work(ClientStep[T]):
    """Slow local work, such as reading files."""

    do: Callable[[], T]
