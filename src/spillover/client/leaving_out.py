"""Reads which files stay behind when somebody names a folder: by `.gitignore`, `.spillignore`, and always `.git`.

So does the data folder of a server, which holds its token, and what it is just writing.
"""

from functools import partial
from pathlib import Path
from typing import Final

from spillover.forms.jobs.ignoring import RuleFiles

REPOSITORY: Final = ".git"
_MOST: Final = 1 << 20
"""Most bytes of a rule file."""


class LeftOut:
    """What a working directory leaves out. Rules in the folders above count up to the one with `.git`, as for git."""

    def __init__(self, root: Path) -> None:
        self._root = root
        real = root.resolve()
        top = next((each for each in (real, *real.parents) if (each / REPOSITORY).exists()), real)
        self._above = "" if top == real else f"{real.relative_to(top).as_posix()}/"
        self._own = RuleFiles(partial(_text, top, ".spillignore"))
        self._git = RuleFiles(partial(_text, top, ".gitignore"))
        self.count = 0
        """How many files and folders were left out."""

    def __call__(self, path: str, *, folder: bool) -> bool:
        """Return whether a file or folder that nobody named stays behind."""
        whole = self._above + path
        if path.rpartition("/")[2] == REPOSITORY or (folder and self._is_of_server(path)):
            said: bool | None = True
        elif (said := self._own.leave_out(whole, folder=folder)) is None:
            said = self._git.leave_out(whole, folder=folder)
        self.count += bool(said)
        return bool(said)

    def _is_of_server(self, path: str) -> bool:
        """Return whether a folder is the data folder of a server."""
        there = self._root / path
        return (there / "token").is_file() and (there / "blobs").is_dir()


def _text(top: Path, name: str, folder: str) -> str:
    """Return the text of a rule file; empty if there is none, or it cannot be read."""
    try:
        with (top / folder / name).open("rb") as file:
            return file.read(_MOST).decode(errors="surrogateescape")
    except OSError:
        return ""
