"""Where commands print: aligned text in a pipe, Rich on a terminal, one JSON value for programs.

Rich takes longer to load than most commands take to run, so it is loaded only when something is drawn on a terminal.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_CONTROL: Final = dict.fromkeys([*range(32), *range(127, 160)], "�") | {9: " ", 10: " ", 13: " "}
"""What others wrote must not drive this terminal."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    """Aligned right, as numbers are."""
    gives: bool = False
    """Shortened first when the terminal is narrow."""


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
            self.console().print(rich_table(columns, rows))
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
    lines = []
    for row in texts:
        parts = [
            text.rjust(wide) if column.right else text.ljust(wide)
            for text, wide, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def rich_table(columns: Sequence[Column], rows: Sequence[Row]) -> "Table":
    """The same table for a terminal: never wider than it, and in colour."""
    from rich.table import Table  # noqa: PLC0415 - heavy
    from rich.text import Text  # noqa: PLC0415 - heavy

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if column.gives else _widest(columns, rows, column),
        )
    for row in rows:
        table.add_row(
            *(Text(_text(cell), style=cell.style if isinstance(cell, Cell) else "") for cell in row)
        )
    return table


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


def _widest(columns: Sequence[Column], rows: Sequence[Row], column: Column) -> int:
    """How wide a column would like to be."""
    at = columns.index(column)
    return max([len(column.title), *(len(_text(row[at])) for row in rows)])


def _text(cell: str | Cell) -> str:
    """The text of a cell, on one line."""
    return clean(cell.text if isinstance(cell, Cell) else cell)
