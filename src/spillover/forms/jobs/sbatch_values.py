"""Reads the values of options of `sbatch`: times, sizes, counts, features of nodes."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from spillover.forms.problems import shown

ALL_MEMORY: Final = 0
"""What `--mem=0` asks for."""
_UNITS: Final = {"": 1 << 10, "K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}
_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_SPAN: Final = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_NODES: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)
_SIGNAL: Final = re.compile(r"(?:B:)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,6}))?", re.ASCII | re.IGNORECASE)
_FEATURE: Final = re.compile(r"[A-Za-z0-9:._/=-]+", re.ASCII)
_LATER: Final = re.compile(r"now\+([0-9]{1,9})([a-z]*)", re.ASCII)
_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_HOURS: Final = {"midnight": 0, "noon": 12, "teatime": 16}
_MAIL_TYPES: Final = {
    "NONE": (),
    "BEGIN": ("begin",),
    "END": ("end",),
    "FAIL": ("fail",),
    "REQUEUE": ("requeue",),
    "TIME_LIMIT": ("time_limit",),
    "ALL": ("begin", "end", "fail", "requeue"),
    "INVALID_DEPEND": ("fail",),
}
_TOLD_OTHERWISE: Final = {
    "INVALID_DEPEND": "INVALID_DEPEND is told as a failure, with all others",
    "ARRAY_TASKS": "ARRAY_TASKS is ignored: an array sends one mail, which counts how its members ended",
    "STAGE_OUT": "STAGE_OUT is ignored: there are no burst buffers",
    "TIME_LIMIT_90": "TIME_LIMIT_90 is ignored: mail comes at the time limit, by TIME_LIMIT",
    "TIME_LIMIT_80": "TIME_LIMIT_80 is ignored: mail comes at the time limit, by TIME_LIMIT",
    "TIME_LIMIT_50": "TIME_LIMIT_50 is ignored: mail comes at the time limit, by TIME_LIMIT",
}
DEFAULT_NOTICE: Final = 60
"""Seconds before the end at which a signal comes, if none are given."""


class SbatchError(ValueError):
    """An invalid value; the message says why, and what to write."""


def number(text: str) -> int:
    """Read a count of one or more."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise SbatchError(f"{shown(text)} is not a whole number of 1 or more")
    return int(text)


def read_span(text: str) -> int | None:
    """Read a time limit in seconds; None if it is unlimited.

    As in Slurm: minutes, minutes:seconds, hours:minutes:seconds, and behind days: hours, hours:minutes and so on.
    """
    if text.upper() in {"UNLIMITED", "INFINITE", "0"}:
        return None
    match = _SPAN.fullmatch(text)
    if match is None:
        raise SbatchError(f"{shown(text)} is not a time; write minutes, hours:minutes:seconds or days-hours")
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None or third is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    total = (((days or 0) * 24 + (hours or 0)) * 60 + (minutes or 0)) * 60 + (seconds or 0)
    return total or None


def read_memory(text: str) -> int:
    """Read a size in KiB; without a unit it is in megabytes, as in Slurm."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise SbatchError(f"{shown(text)} is not a size; write 4G or 500M")
    return int(match[1]) * _UNITS[match[2].upper()]


def read_nodes(text: str) -> tuple[int, int]:
    """Read the number of nodes, and the most of them if it is a range; otherwise 0."""
    match = _NODES.fullmatch(text)
    least = 0 if match is None else int(match[1])
    most = least if match is None or match[2] is None else int(match[2])
    if not 1 <= least <= most:
        raise SbatchError(f"{shown(text)} is not a number of nodes; write 2, or a range such as 2-4")
    return least, most if most > least else 0


def read_gres(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield each generic resource: its name, its type (empty if any), and how many."""
    for part in text.split(","):
        words = part.strip().removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")
        # `gpu:2`, `gpu:a100:2` and `gpu:a100`; of two GPU options, the name is that of the option
        count = words.pop() if len(words) > 1 and words[-1].isdigit() else "1"
        name, kind = words[0], ":".join(words[1:])
        if not name or not _FEATURE.fullmatch(name) or (kind and not _FEATURE.fullmatch(kind)):
            raise SbatchError(f"{shown(part)} is not a resource; write gpu:2 or gpu:a100:2")
        yield name, kind, number(count) if count != "0" else 0


def read_signal(text: str) -> tuple[str, int]:
    """Return a signal as it is written, and how many seconds before the end it comes."""
    match = _SIGNAL.fullmatch(text)
    if match is None:
        raise SbatchError(f"{shown(text)} is not a signal; write USR1@60 or B:USR1@60")
    return match[1], int(match[2] or DEFAULT_NOTICE)


def read_mail_types(text: str) -> tuple[list[str], list[str]]:
    """Return what `--mail-type` asks to be told, and a note for each part that is told in another way, or not at all."""
    kinds: dict[str, None] = {}
    notes: list[str] = []
    for part in text.split(","):
        word = part.strip().upper()
        if word in _TOLD_OTHERWISE:
            notes.append(_TOLD_OTHERWISE[word])
        if word not in _MAIL_TYPES and word not in _TOLD_OTHERWISE:
            known = ", ".join({**_MAIL_TYPES, **_TOLD_OTHERWISE})
            raise SbatchError(f"{shown(part)} is not one of {known}")
        kinds |= dict.fromkeys(_MAIL_TYPES.get(word, ()))
    return list(kinds), notes


def features(text: str) -> dict[str, Any]:
    """Return the constraints for features that are combined with `&` or `|`."""
    plain = text.strip()
    if plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1]
    either = [part.split("&") for part in re.split(r"[|]", plain)]
    if not all(_FEATURE.fullmatch(word.strip()) for words in either for word in words):
        raise SbatchError(
            f"{shown(text)} is not supported; write features with `&` or `|` between them, as in intel&gpu"
        )
    each = [{"properties": [word.strip() for word in words]} for words in either]
    return each[0] if len(each) == 1 else {"or": each}


def moment(text: str, now: datetime) -> str:
    """Return a time, which may be relative to now, as RFC 3339."""
    return _moment(text.strip().lower(), now, text).isoformat()


def _moment(text: str, now: datetime, written: str) -> datetime:
    if text == "now":
        return now
    if (match := _LATER.fullmatch(text)) is not None:
        unit = match[2].removesuffix("s") or "second"
        for name, seconds in _SECONDS.items():
            if name.startswith(unit) and (len(unit) > 2 or name == unit):
                return now + timedelta(seconds=int(match[1]) * seconds)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in {"today", "tomorrow"}:
        return today + timedelta(days=text == "tomorrow")
    clock = (_HOURS[text], 0, 0) if text in _HOURS else None
    if (match := _CLOCK.fullmatch(text)) is not None:
        clock = (int(match[1]), int(match[2]), int(match[3] or 0))
    try:
        if clock is not None:
            at = today.replace(hour=clock[0], minute=clock[1], second=clock[2])
            return at if at > now else at + timedelta(days=1)
        at = datetime.fromisoformat(text.upper())
    except ValueError:
        told = "write now+1hour, 16:00 or 2027-01-31T18:00:00"
        raise SbatchError(f"{shown(written)} is not a time; {told}") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)


def both_ends(job: str, one: str, other: str) -> str:
    """Return the end of a job for which both wait: one that says more than any end wins."""
    if "any" not in {one, other} and one != other:
        raise SbatchError(f"{shown(job)} cannot both succeed and fail; write afterany:{job} for any end")
    return other if one == "any" else one
