"""What each source of input is: stories that can be drawn, told and printed, and how one is played."""

import asyncio
from collections.abc import Callable, Coroutine
from pprint import pformat
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support.inputs.serving import LiveServer


class Source(NamedTuple):
    """Somebody outside who may say anything."""

    name: str
    stories: st.SearchStrategy[Any]
    """Plain values, so that one that goes wrong can be printed whole and kept as a test."""
    play: Callable[[Any], Coroutine[Any, Any, None]]
    """Has a server hear all of a story; raises Broken if that cost more than it may."""


def tell(source: Source, story: Any) -> None:
    """Play one story, on a server of its own; what is raised has the story in its notes."""
    try:
        asyncio.run(source.play(story))
    except Exception as error:
        error.add_note(f"The story, of {source.name}:\n{pformat(story, width=120)}")
        raise


def explore(source: Source, stories: int, first: int | None = None) -> None:
    """Play so many stories; raises what the shortest that goes wrong raised, with the story in its notes.

    `first` is the number that they are drawn from; None draws the same ones every time.
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
    """Have a story heard by a server, and see that all holds in the end."""
    async with server:
        await story(server)
        await server.holds()
