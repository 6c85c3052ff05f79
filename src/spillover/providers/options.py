"""Checks of options that several providers have."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from spillover.forms.problems import shown
from spillover.ports.kinds import Flaw
from spillover.providers.userdata import MOST_SETUP


def beneath(home: Path, written: str) -> Path:
    """Return the path of an option; `~` is the home folder of the server's user."""
    return home / written[2:] if written.startswith("~/") else Path(written)


def setup_flaws(setup: Sequence[str]) -> Iterator[Flaw]:
    """Return what is wrong with the operator's lines for new machines."""
    size = sum(len(line.encode()) + 1 for line in setup)
    if size > MOST_SETUP:
        yield Flaw(
            ("setup",),
            f"has {size} bytes, and clouds take {MOST_SETUP}; download a script in it, or put it into the image",
        )
    for at, line in enumerate(setup):
        if "\0" in line:
            yield Flaw(("setup", at), "has a zero byte")


def url_flaws(name: str, url: str) -> Iterator[Flaw]:
    """Return what is wrong with the URL of an API."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        sound = False
    if not sound:
        yield Flaw((name,), f"{shown(url)} is not a URL; write one such as https://api.example.com/v1")
