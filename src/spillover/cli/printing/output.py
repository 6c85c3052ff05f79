"""Prints results: aligned text in a pipe, Rich on a terminal, one JSON value for programs.

Rich takes longer to load than most commands take to run, so it is loaded only to draw on a terminal.
"""

import csv
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_GAP: Final = "  "
"""Space between two columns."""
_LEAST: Final = 10
"""Characters that a column keeps on the narrowest terminal."""
_CONTROL: Final = dict.fromkeys([*range(32), *range(127, 160)], "�") | {9: " ", 10: " ", 13: " "}
"""Replaces control characters, because text from other users must not control this terminal."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    """Aligns the text right, as for numbers."""
    gives: bool = False
    """Shortened first when the terminal is narrow."""
    drops: int = 0
    """Order in which columns disappear from a narrow terminal, the highest first; 0 means never."""


class Cell(NamedTuple):
    """A text and its style on a terminal."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


class Output:
    """Standard output and standard error of a command."""

    def __init__(self, out: TextIO, err: TextIO, *, width: int | None = None) -> None:
        """Use this width; None means that of the terminal."""
        self.out, self.err = out, err
        self.terminal = out.isatty()
        """Whether output goes to a terminal."""
        self._width = width

    def line(self, text: str = "") -> None:
        """Print one line."""
        print(clean(text), file=self.out)

    def note(self, text: str) -> None:
        """Print a message to standard error."""
        print(f"spill: {clean(text)}", file=self.err)

    def json(self, value: Any) -> None:
        """Print one JSON value: compact in a pipe, indented on a terminal."""
        import msgspec  # noqa: PLC0415 - heavy

        body = msgspec.json.encode(value)
        print((msgspec.json.format(body) if self.terminal else body).decode(), file=self.out)

    def table(self, columns: Sequence[Column], rows: Sequence[Row], *, titles: bool = True) -> None:
        """Print a table, with column titles unless they are unwanted."""
        if not titles:
            columns = [column._replace(title="") for column in columns]
        if self.terminal:
            console = self.console()
            table = rich_table(columns, rows, console.width)
            console.print(table if titles else table[1:], no_wrap=True, overflow="ellipsis")
        else:
            for text in plain_table(columns, rows)[0 if titles else 1 :]:
                print(text, file=self.out)

    def csv(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Print comma-separated values with the names of the columns in the first line."""
        writer = csv.writer(self.out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(cell) for cell in row] for row in rows)

    def sheet(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print named facts, one per line; a terminal wraps long ones and indents the rest."""
        if self.terminal:
            self.console().print(rich_sheet(facts))
            return
        wide = max((len(name) for name, _ in facts), default=0)
        for name, text in facts:
            print(f"{name:{wide}}  {clean(text)}".rstrip(), file=self.out)

    def flush(self) -> None:
        """Flush standard output."""
        self.out.flush()

    def console(self) -> "Console":
        """Return a Rich console for this output."""
        from rich.console import Console  # noqa: PLC0415 - heavy

        width = self._width or (None if self.terminal else int(os.environ.get("COLUMNS", "0")) or 100)
        return Console(file=self.out, width=width, highlight=False, soft_wrap=False)


def clean(text: str) -> str:
    """Return a text on one line, without control characters."""
    return text if text.isprintable() else text.translate(_CONTROL)


def plain_table(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table, each column as wide as its widest text."""
    texts = [[column.title for column in columns], *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [_line(columns, row, widths) for row in texts]


def rich_table(columns: Sequence[Column], rows: Sequence[Row], width: int) -> "Text":
    """Return a table in colour for a terminal, with columns dropped and shortened to fit."""
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
    """Drop optional columns until the table fits, or none are left."""
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
    """Shorten the columns that give, the widest first, down to a minimum."""
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
    """Pad a text to the width of its column; cut a longer one with an ellipsis."""
    text = text if len(text) <= wide else text[: wide - 1] + "…"
    return text.rjust(wide) if column.right else text.ljust(wide)


def rich_sheet(facts: Sequence[tuple[str, str]]) -> "Table":
    """Return named facts as a Rich table."""
    from rich.table import Table  # noqa: PLC0415 - heavy
    from rich.text import Text  # noqa: PLC0415 - heavy

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(name, Text(clean(text)))
    return table


def _text(cell: str | Cell) -> str:
    """Return the text of a cell, on one line."""
    return clean(cell.text if isinstance(cell, Cell) else cell)
