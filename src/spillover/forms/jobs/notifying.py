"""Reads whom a job wants to be told when it begins or ends."""

from collections.abc import Iterable

from spillover.forms.problems import Findings, Path, shown
from spillover.model.ids import is_name
from spillover.model.notifications import OF_JOBS, Notify, When, is_address
from spillover.wire.jobfile import NotifyDoc

_KINDS = {each.value: each for each in OF_JOBS}


def read_notify(entries: Iterable[NotifyDoc | str], found: Findings) -> tuple[Notify, ...]:
    """Return the receivers of a job, each once; add problems to `found`."""
    wanted: dict[str, dict[When, None]] = {}
    for at, entry in enumerate(entries):
        path: Path = ("spec", "notify", at)
        to, on = _short(entry, path, found) if isinstance(entry, str) else (entry.to, entry.on)
        if "@" in to and not is_address(to):
            found.add(path, f"{shown(to)} is not a mail address; write ada@example.org")
        elif "@" not in to and not is_name(to):
            found.add(
                path,
                f"{shown(to)} is neither a mail address nor the name of a webhook; write end:ada@example.org",
            )
        wanted.setdefault(to, {}).update(dict.fromkeys(_KINDS[word] for word in on if word in _KINDS))
    return tuple([Notify(to, tuple(kinds)) for to, kinds in wanted.items()])


def _short(text: str, path: Path, found: Findings) -> tuple[str, list[str]]:
    """Read `WHEN,WHEN:TO`, or `TO` alone for the end of the job."""
    on, colon, to = text.partition(":")
    if not colon:
        return text, [When.END.value]
    words = on.split(",")
    wrong = next((word for word in words if word not in _KINDS), None)
    if wrong is not None:
        found.add(path, f"{shown(wrong)} is not one of {', '.join(_KINDS)}; write end:ada@example.org")
    return to, words
