"""Caches what calls of the same work share: the function, its arguments, and their files."""

from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import msgspec

from spillover.agent.files.cache import Files
from spillover.model.job import PythonCall

MOST: Final = 100
"""Most kinds of calls whose files are held."""

Context: TypeAlias = tuple[Any, ...]
"""In the form that workers receive, see `frames.CONTEXT`."""


class Contexts:
    """The contexts of the last kinds of calls."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[int, tuple[PythonCall, Context, AsyncExitStack]] = {}
        """By the identity of the work. The entry keeps the work alive, and its files in the cache."""

    def get(self, work: object) -> Context | None:
        """Return the context of known work; None if it must be fetched."""
        known = self._known.get(id(work))
        return known[1] if known is not None else None

    async def fetch(self, python: PythonCall) -> Context:
        """Fetch the files of a call and return its context; raise Unfetched if a file is unavailable."""
        held = AsyncExitStack()
        try:
            function, items, *values = [
                str(await held.enter_async_context(self._files.held(digest))) if digest else ""
                for digest in (python.function, python.items, *(each.digest for each in python.values))
            ]
        except BaseException:
            await held.aclose()
            raise
        known = self.get(python)
        if known is not None:  # another call of the same kind was faster
            await held.aclose()
            return known
        args = msgspec.json.encode(python.args)
        # Each value is its path, or the value itself.
        earlier = [path or each.value for path, each in zip(values, python.values, strict=True)]
        context = (python.call, args, function, python.arguments, items, python.first, earlier)
        self._known[id(python)] = (python, context, held)
        while len(self._known) > MOST:
            await self._known.pop(next(iter(self._known)))[2].aclose()
        return context

    async def close(self) -> None:
        """Release all files."""
        for _, _, held in self._known.values():
            await held.aclose()
        self._known.clear()
