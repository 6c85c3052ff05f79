"""Files that a command writes: none of them is one that it reads."""

import os
from collections.abc import Iterable

RECIPE = "synthetic:"


def problems_of(reads: str, option: str, writes: Iterable[tuple[str, str | None]]) -> list[str]:
    """Of each option with a file that is the one that is read by another option, or that an option before writes."""
    found: list[str] = []
    seen = [(read, option) for read in _files(reads)]
    for flag, path in writes:
        if path is None:
            continue
        for other, by in seen:
            if same_file(path, other):
                found.append(
                    f"{flag}: {path} is the file of {by}, which would be overwritten; name another one"
                )
                break
        seen.append((path, flag))
    return found


def same_file(one: str, other: str) -> bool:
    """Whether two names are those of one file, whether it is there or not."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - pathlib takes as long to load as a small trace to read
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _files(trace: str) -> list[str]:
    """What is read for a trace: itself, or what a recipe names."""
    if not trace.startswith(RECIPE):
        return [trace]
    from spillover.forms.oneline import Piece  # noqa: PLC0415 - few traces are recipes

    pairs = [part.pair() for part in Piece(trace.removeprefix(RECIPE)).words()]
    return [path.strip().text for name, path in pairs if path and name.strip().text == "like"]
