"""Lays out one frame of `spill top` as lines of text: header, tables and keys. Uses values only."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.printing.output import Column, Row, clean, rich_table
from spillover.cli.printing.shown import duration, local, money
from spillover.cli.top import tables
from spillover.cli.top.view import VIEWS, Look, TopView

if TYPE_CHECKING:
    from rich.text import Text

    from spillover.wire.api import PoolSummary

HEAD: Final = 3
"""Lines of the header; the last is empty unless there is a problem."""
FOOT: Final = 1
LEAST: Final = 8
"""Lines of a terminal below which only the header is shown."""


class Frame(NamedTuple):
    """A frame to draw, and how far it can be scrolled."""

    lines: "list[Text]"
    page: int
    """Rows of the queue that are visible at once."""
    most: int
    """The largest offset that still shows new rows."""


class _Part(NamedTuple):
    """A table and its title."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]


def frame(look: Look, view: TopView, width: int, height: int) -> Frame:
    """Return a frame of exactly `height` lines, none wider than the terminal."""
    room = max(0, height - HEAD - FOOT)
    parts, page, most = _body(look, view, width, room) if height >= LEAST else ([], 0, 0)
    body = _lines(parts, width)[:room]
    lines = [*_head(look, view, width), *body, *_empty(room - len(body)), _foot(view, width)]
    return Frame([_fit(line, width) for line in lines[:height]], page, most)


def once(look: Look, width: int, rows: int = 20) -> "list[Text]":
    """Return all tables for a single print, as long as they need to be."""
    seen = look.seen
    parts = [
        _Part("", *tables.clusters(seen, width)),
        _Part("", *tables.agents(seen, 0, rows, width)),
        _Part(_running_title(look, 0, rows), *tables.running(seen, 0, rows, width)),
        _Part(_queue_title(look, 0), *tables.queue(seen, 0, rows, width)),
    ]
    lines = [*_head(look, TopView(), width), *_lines([part for part in parts if part.rows], width)]
    return [_fit(line, width) for line in lines]


def _body(look: Look, view: TopView, width: int, room: int) -> tuple[list[_Part], int, int]:
    """Return the tables of a view that fit into `room` lines, the visible rows, and the largest offset."""
    seen = look.seen
    if view.shows == "agents":
        rows = max(1, room - 1)
        most = max(0, len(seen.agents) - rows)
        part = _Part("", *tables.agents(seen, min(view.offset, most), rows, width))
        return [part], rows, most
    parts: list[_Part] = []
    if view.shows == "all":
        parts = [_Part("", *_few(*tables.clusters(seen, width), most=max(1, room // 5)))]
        agents = tables.agents(seen, 0, max(1, room // 6), width)
        parts.append(_Part("", *agents))
        room -= sum(len(part.rows) + 2 for part in parts)
    room -= 5  # two titles, two lines of column names, and a blank line between the lists
    running, queued = _shared(len(seen.running), len(seen.queued), max(2, room))
    most = max(0, len(seen.running) - running, len(seen.queued) - queued)
    down = min(view.offset, most)
    above = min(down, max(0, len(seen.running) - running))
    parts.append(_Part(_running_title(look, above, running), *tables.running(seen, above, running, width)))
    above = min(down, max(0, len(seen.queued) - queued))
    parts.append(_Part(_queue_title(look, above), *tables.queue(seen, above, queued, width)))
    return parts, max(1, queued), most


def _shared(first: int, second: int, room: int) -> tuple[int, int]:
    """Divide rows between two lists: half each, and unused rows go to the other list."""
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= room - half:
        return room - second, second
    return half, room - half


def _few(columns: list[Column], rows: list[Row], most: int) -> tuple[list[Column], list[Row]]:
    return columns, rows[:most]


def _running_title(look: Look, above: int, rows: int) -> str:
    seen = look.seen
    return f"running: {_part(above, min(rows, len(seen.running) - above), seen.running_in_all)}"


def _queue_title(look: Look, above: int) -> str:
    seen = look.seen
    return f"queue: {seen.server.queued:,}" + (f", from job {above + 1:,} on" if above else "")


def _part(above: int, shown: int, total: int) -> str:
    """Return which rows of how many are visible."""
    if shown >= total:
        return f"{total:,}"
    return f"{above + 1:,}-{above + shown:,} of {total:,}"


def _head(look: Look, view: TopView, width: int) -> "list[Text]":
    """Return the header: server, totals, and the current problem."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    seen, server = look.seen, look.seen.server
    first = Text("spill top", style="bold")
    leads = f"leader, epoch {server.epoch}" if server.leader else f"not the leader, epoch {server.epoch}"
    first.append(f"  {clean(look.url)}, {leads}", style="not bold")
    right = Text("paused  " if view.paused else "", style="bold yellow")
    right.append(local(seen.at), style="not bold" if look.away is None else "not bold bright_black")
    second = Text()
    for at, (value, word) in enumerate(
        (
            (f"{server.queued:,}", "queued"),
            (f"{server.running:,}", "running"),
            (f"{seen.ended_a_minute:,}", "ended in the last minute"),
            (money(seen.cost_an_hour, server.currency), "an hour"),
        )
    ):
        second.append("   " if at else "").append(value, style="bold").append(f" {word}")
    if seen.pools:
        _add_pools(second, seen.pools, server.currency)
    wrong = ""
    if look.away is not None:
        wrong = f"no answer for {duration(round(look.away.seconds))}, retrying: {look.away.why}"
    elif not server.writable:
        wrong = f"accepts no jobs: {server.message}"
    elif server.clock is not None:
        wrong = server.clock
    elif paused := [each for each in seen.pools if each.paused is not None]:
        wrong = "; ".join([f"the pool of {each.cluster} is paused: {each.paused}" for each in paused])
    return [_ends(first, right, width), second, Text(clean(wrong), style="bold red")]


def _add_pools(line: "Text", pools: "Sequence[PoolSummary]", currency: str) -> None:
    """Add how many machines all pools have, by state, and what they cost an hour."""
    states: Counter[str] = Counter()
    for pool in pools:
        states.update(pool.machines)
    named = ", ".join([f"{count:,} {state}" for state, count in states.items()])
    cost = money(sum([pool.hour for pool in pools]), currency)
    line.append("   ").append(f"{states.total():,}", style="bold").append(" rented machines")
    if named:
        line.append(f" ({named}) for {cost} an hour")


def _foot(view: TopView, width: int) -> "Text":
    """Return the footer with the keys."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    left = Text()
    for number, name in enumerate(VIEWS, 1):
        left.append(f" {number} {name} ", style="reverse" if name == view.shows else "").append(" ")
    keys = (
        "tab view  j/k scroll  p resume  q quit " if view.paused else "tab view  j/k scroll  p pause  q quit "
    )
    return _ends(left, Text(keys, style="bright_black"), width)


def _ends(left: "Text", right: "Text", width: int) -> "Text":
    """Put two texts at the ends of a line; shorten the left one if necessary."""
    room = width - right.cell_len - 1
    if room < 10:
        return left
    left = left.copy()
    left.truncate(room, overflow="ellipsis", pad=True)
    return left.append(" ").append_text(right)


def _lines(parts: Sequence[_Part], width: int) -> "list[Text]":
    """Stack tables with an empty line between them."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    lines: list[Text] = []
    for part in parts:
        if lines:
            lines.append(Text())
        if part.title:
            lines.append(Text(part.title, style="bold magenta"))
        table = rich_table(part.columns, part.rows, width)
        lines += table.split("\n", allow_blank=True) if part.rows else [Text("  none", style="bright_black")]
    return lines


def _empty(count: int) -> "list[Text]":
    from rich.text import Text  # noqa: PLC0415 - heavy

    return [Text() for _ in range(max(0, count))]


def _fit(line: "Text", width: int) -> "Text":
    """Truncate a line so that the terminal does not wrap it."""
    line.truncate(width, overflow="ellipsis")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
