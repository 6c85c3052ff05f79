"""Makes sure that a command does not overwrite a file that it also reads or writes."""

import os
from collections.abc import Iterable

RECIPE = "synthetic:"


def problems_of(reads: str, option: str, writes: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return a problem for each option whose file is also read, or written by an earlier option."""
    found: list[str] = []
    seen = [(read, option) for read in _files(reads)]
    for flag, path in writes:
        if path is None:
            continue
        for other, by in seen:
            if same_file(path, other):
                found.append(
                    f"{flag}: {path} is also the file of {by} and would be overwritten; choose another file"
                )
                break
        seen.append((path, flag))
    return found


def same_file(one: str, other: str) -> bool:
    """Tell whether two paths name the same file, which need not exist."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - pathlib takes as long to load as a small trace to read
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _files(trace: str) -> list[str]:
    """Return the files that a trace is read from: itself, or the `like` files of a recipe."""
    if not trace.startswith(RECIPE):
        return [trace]
    from spillover.forms.oneline import Piece  # noqa: PLC0415 - few traces are recipes

    pairs = [part.pair() for part in Piece(trace.removeprefix(RECIPE)).words()]
    return [path.strip().text for name, path in pairs if path and name.strip().text == "like"]
