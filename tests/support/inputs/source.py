"""Defines a source of input: stories that can be drawn and printed, and how to play one."""

import asyncio
from collections.abc import Callable, Coroutine
from pprint import pformat
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support.inputs.serving import LiveServer


class Source(NamedTuple):
    """A source of arbitrary input from outside."""

    name: str
    stories: st.SearchStrategy[Any]
    """Plain values, so that a failing story can be printed and kept as a test."""
    play: Callable[[Any], Coroutine[Any, Any, None]]
    """Sends a whole story to a server; raises Broken if it had more effect than allowed."""


def tell(source: Source, story: Any) -> None:
    """Play one story on a new server; add the story to the notes of an error."""
    try:
        asyncio.run(source.play(story))
    except Exception as error:
        error.add_note(f"The story, of {source.name}:\n{pformat(story, width=120)}")
        raise


def explore(source: Source, stories: int, first: int | None = None) -> None:
    """Play many stories; raise the error of the shortest that fails, with the story in its notes.

    `first` is the random seed; None always draws the same stories.
    """

    @settings(
        max_examples=stories,
        derandomize=first is None,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(story=source.stories)
    def story_of_input(story: Any) -> None:
        tell(source, story)

    run = story_of_input if first is None else seed(first)(story_of_input)
    run()


async def with_server(story: Callable[[LiveServer], Coroutine[Any, Any, None]], server: LiveServer) -> None:
    """Play a story on a server, and run all checks at the end."""
    async with server:
        await story(server)
        await server.holds()
