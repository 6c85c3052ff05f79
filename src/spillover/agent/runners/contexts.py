"""What calls of one kind of work share: what is called and with which arguments, and the files that holds them here."""

from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import msgspec

from spillover.agent.files import Files
from spillover.model.job import PythonCall

MOST: Final = 100
"""Kinds of calls whose files are held."""

Context: TypeAlias = tuple[Any, ...]
"""As a worker is told, see `frames.CONTEXT`."""


class Contexts:
    """Those of the last kinds of calls."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[int, tuple[PythonCall, Context, AsyncExitStack]] = {}
        """By the identity of the work, which is kept here with it, as are its files."""

    def get(self, work: object) -> Context | None:
        """The context of work that is known; None if it has to be fetched."""
        known = self._known.get(id(work))
        return known[1] if known is not None else None

    async def fetch(self, python: PythonCall) -> Context:
        """Have the files of a call here; raises Unfetched."""
        held = AsyncExitStack()
        try:
            function, items = [
                str(await held.enter_async_context(self._files.held(digest))) if digest else ""
                for digest in (python.function, python.items)
            ]
        except BaseException:
            await held.aclose()
            raise
        known = self.get(python)
        if known is not None:  # another call of the same kind was faster
            await held.aclose()
            return known
        args = msgspec.json.encode(python.args)
        context = (python.call, args, function, python.arguments, items, python.first)
        self._known[id(python)] = (python, context, held)
        while len(self._known) > MOST:
            await self._known.pop(next(iter(self._known)))[2].aclose()
        return context

    async def close(self) -> None:
        """Let go of all files."""
        for _, _, held in self._known.values():
            await held.aclose()
        self._known.clear()
