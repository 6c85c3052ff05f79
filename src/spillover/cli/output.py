"""Where commands print: aligned text in a pipe, Rich on a terminal, one JSON value for programs.

Rich takes longer to load than most commands take to run, so it is loaded only when something is drawn on a terminal.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_GAP: Final = "  "
"""Between two columns."""
_LEAST: Final = 10
"""Characters that a column keeps however narrow the terminal is."""
_CONTROL: Final = dict.fromkeys([*range(32), *range(127, 160)], "�") | {9: " ", 10: " ", 13: " "}
"""What others wrote must not drive this terminal."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    """Aligned right, as numbers are."""
    gives: bool = False
    """Shortened first when the terminal is narrow."""
    drops: int = 0
    """Left out when the terminal is narrow, before others are shortened: the highest first; 0 stays."""


class Cell(NamedTuple):
    """A text and its style on a terminal."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


class Output:
    """Standard output and standard error of a command."""

    def __init__(self, out: TextIO, err: TextIO, *, width: int | None = None) -> None:
        """`width` is that of the terminal; None asks it."""
        self.out, self.err = out, err
        self.terminal = out.isatty()
        """Whether a person is watching."""
        self._width = width

    def line(self, text: str = "") -> None:
        """Print one line."""
        print(clean(text), file=self.out)

    def note(self, text: str) -> None:
        """Say something about the work that is not its result."""
        print(f"spill: {clean(text)}", file=self.err)

    def json(self, value: Any) -> None:
        """Print one JSON value: one line for a program, indented for a person."""
        import msgspec  # noqa: PLC0415 - heavy

        body = msgspec.json.encode(value)
        print((msgspec.json.format(body) if self.terminal else body).decode(), file=self.out)

    def table(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Print a table with its titles."""
        if self.terminal:
            console = self.console()
            console.print(rich_table(columns, rows, console.width), no_wrap=True, overflow="ellipsis")
        else:
            for text in plain_table(columns, rows):
                print(text, file=self.out)

    def sheet(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print named facts, one a line; a terminal wraps long ones under themselves."""
        if self.terminal:
            self.console().print(rich_sheet(facts))
            return
        wide = max((len(name) for name, _ in facts), default=0)
        for name, text in facts:
            print(f"{name:{wide}}  {clean(text)}".rstrip(), file=self.out)

    def flush(self) -> None:
        """Show what was printed, now."""
        self.out.flush()

    def console(self) -> "Console":
        """Rich on this terminal."""
        from rich.console import Console  # noqa: PLC0415 - heavy

        width = self._width or (None if self.terminal else int(os.environ.get("COLUMNS", "0")) or 100)
        return Console(file=self.out, width=width, highlight=False, soft_wrap=False)


def clean(text: str) -> str:
    """A text on one line, without anything that a terminal obeys."""
    return text if text.isprintable() else text.translate(_CONTROL)


def plain_table(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """Lines of a table, each column as wide as its widest text."""
    texts = [[column.title for column in columns], *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [_line(columns, row, widths) for row in texts]


def rich_table(columns: Sequence[Column], rows: Sequence[Row], width: int) -> "Text":
    """The same table for a terminal, in colour; where no column can give more, its rows are cut at the end."""
    from rich.text import Text  # noqa: PLC0415 - heavy

    columns, rows = _without(columns, rows, width)
    titles = [column.title for column in columns]
    texts = [titles, *([_text(cell) for cell in row] for row in rows)]
    widths = _fitted(columns, [max(map(len, column)) for column in zip(*texts, strict=True)], width)
    table = Text(_line(columns, titles, widths), style="bold", no_wrap=True, overflow="ellipsis")
    for row, cells in zip(rows, texts[1:], strict=True):
        line = Text(style="not bold")
        for cell, text, wide, column in zip(row, cells, widths, columns, strict=True):
            style = cell.style if isinstance(cell, Cell) else ""
            line.append(_padded(text, wide, column), style=style).append(_GAP)
        line.rstrip()
        table.append("\n").append_text(line)
    return table


def _without(
    columns: Sequence[Column], rows: Sequence[Row], width: int
) -> tuple[Sequence[Column], Sequence[Row]]:
    """The table without columns that may be left out, as far as it is too wide."""
    wide = [
        max(len(column.title), *(len(_text(row[at])) for row in rows), 0) for at, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while sum(wide[at] for at in kept) + len(_GAP) * (len(kept) - 1) > width:
        drops, at = max((columns[at].drops, at) for at in kept)
        if not drops:
            break
        kept.remove(at)
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Take what is too much from the columns that give, the widest first, and from none more than it can bear."""
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while over > 0:
        wide, at = max(
            ((widths[at], at) for at, column in enumerate(columns) if column.gives and widths[at] > _LEAST),
            default=(0, 0),
        )
        if not wide:
            break
        widths[at] -= 1
        over -= 1
    return widths


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table."""
    parts = [_padded(text, wide, column) for text, wide, column in zip(row, widths, columns, strict=True)]
    return _GAP.join(parts).rstrip()


def _padded(text: str, wide: int, column: Column) -> str:
    """A text as wide as its column, cut with a sign of it if it is too long."""
    text = text if len(text) <= wide else text[: wide - 1] + "…"
    return text.rjust(wide) if column.right else text.ljust(wide)


def rich_sheet(facts: Sequence[tuple[str, str]]) -> "Table":
    """Named facts for a terminal."""
    from rich.table import Table  # noqa: PLC0415 - heavy
    from rich.text import Text  # noqa: PLC0415 - heavy

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(name, Text(clean(text)))
    return table


def _text(cell: str | Cell) -> str:
    """The text of a cell, on one line."""
    return clean(cell.text if isinstance(cell, Cell) else cell)
