"""One frame of `spill top`: header, tables and keys as lines of text, made of values alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.output import Column, Row, clean, rich_table
from spillover.cli.shown import duration, local, money
from spillover.cli.top import tables
from spillover.cli.top.view import VIEWS, Look, TopView

if TYPE_CHECKING:
    from rich.text import Text

HEAD: Final = 3
"""Lines of the header; the last is empty unless something is wrong."""
FOOT: Final = 1
LEAST: Final = 8
"""Lines below which a terminal shows nothing but the header."""


class Frame(NamedTuple):
    """What is drawn."""

    lines: "list[Text]"
    page: int
    """Rows of the longest list that are seen at once."""
    most: int
    """How far one can scroll before the last rows are seen."""


class _Part(NamedTuple):
    """A table and its title."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]


def frame(look: Look, view: TopView, width: int, height: int) -> Frame:
    """A frame of exactly so many lines, none wider than the terminal."""
    room = max(0, height - HEAD - FOOT)
    parts, page, most = _body(look, view, width, room) if height >= LEAST else ([], 0, 0)
    body = _lines(parts, width)[:room]
    lines = [*_head(look, view, width), *body, *_empty(room - len(body)), _foot(view, width)]
    return Frame([_fit(line, width) for line in lines[:height]], page, most)


def once(look: Look, width: int, rows: int = 20) -> "list[Text]":
    """A frame as it is printed and left alone: as long as it needs to be."""
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
    """The tables of a view that fit into so many lines; how many rows they show, and how far they can be scrolled."""
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
    room -= 5  # two titles, two lines of names of columns, and what keeps the lists apart
    running, queued = _shared(len(seen.running), len(seen.queued), max(2, room))
    most = max(0, len(seen.running) - running, len(seen.queued) - queued)
    down = min(view.offset, most)
    above = min(down, max(0, len(seen.running) - running))
    parts.append(_Part(_running_title(look, above, running), *tables.running(seen, above, running, width)))
    above = min(down, max(0, len(seen.queued) - queued))
    parts.append(_Part(_queue_title(look, above), *tables.queue(seen, above, queued, width)))
    return parts, max(1, queued), most


def _shared(first: int, second: int, room: int) -> tuple[int, int]:
    """Rows for two lists: half for each, and what one does not need is the other's."""
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
    return f"queue: {seen.server.queued:,}" + (f", from the {above + 1:,}. on" if above else "")


def _part(above: int, shown: int, total: int) -> str:
    """Which of how many are seen."""
    if shown >= total:
        return f"{total:,}"
    return f"{above + 1:,}-{above + shown:,} of {total:,}"


def _head(look: Look, view: TopView, width: int) -> "list[Text]":
    """Who is looked at, how it goes, and what is wrong."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    seen, server = look.seen, look.seen.server
    first = Text("spill top", style="bold")
    leads = f"leads in epoch {server.epoch}" if server.leader else f"does not lead; epoch {server.epoch}"
    first.append(f"  {clean(look.url)}, {leads}", style="not bold")
    right = Text("paused  " if view.paused else "", style="bold yellow")
    right.append(local(seen.at), style="not bold" if look.away is None else "not bold bright_black")
    second = Text()
    for at, (value, word) in enumerate(
        (
            (f"{server.queued:,}", "queued"),
            (f"{server.running:,}", "running"),
            (f"{seen.ended_a_minute:,}", "ended a minute"),
            (money(seen.cost_an_hour, server.currency), "an hour"),
        )
    ):
        second.append("   " if at else "").append(value, style="bold").append(f" {word}")
    wrong = ""
    if look.away is not None:
        wrong = f"away for {duration(round(look.away.seconds))}, still asking: {look.away.why}"
    elif not server.writable:
        wrong = f"accepts no work: {server.message}"
    elif server.clock is not None:
        wrong = server.clock
    return [_ends(first, right, width), second, Text(clean(wrong), style="bold red")]


def _foot(view: TopView, width: int) -> "Text":
    """The keys."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    left = Text()
    for number, name in enumerate(VIEWS, 1):
        left.append(f" {number} {name} ", style="reverse" if name == view.shows else "").append(" ")
    keys = (
        "tab view  j/k scroll  p go on  q quit " if view.paused else "tab view  j/k scroll  p pause  q quit "
    )
    return _ends(left, Text(keys, style="bright_black"), width)


def _ends(left: "Text", right: "Text", width: int) -> "Text":
    """Two texts at the two ends of a line; the left one gives way."""
    room = width - right.cell_len - 1
    if room < 10:
        return left
    left = left.copy()
    left.truncate(room, overflow="ellipsis", pad=True)
    return left.append(" ").append_text(right)


def _lines(parts: Sequence[_Part], width: int) -> "list[Text]":
    """Tables below each other with an empty line between."""
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
    """A line that the terminal does not wrap."""
    line.truncate(width, overflow="ellipsis")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
