"""Reads the work of a job: exactly one of a shell line, a command, a Python call or a container."""

import re
from typing import Any, Final

import msgspec

from spillover.forms.problems import Findings, Path, shown
from spillover.model.files import is_digest
from spillover.model.job import Argv, Container, EarlierValue, PythonCall, Shell, Work
from spillover.wire.jobfile import ContainerDoc, GroupDoc, PythonDoc, SpecDoc

WORKS: Final = ("run", "command", "python", "container")
"""Fields of a spec that define the work."""

MOST_WORD: Final = 131_071
"""Most bytes of one argument or variable on Linux."""

MOST_DEPTH: Final = 64
"""Most levels of nesting."""

_FULL_ID: Final = re.compile(r"[a-z2-7]{12}(?:\.[0-9]{1,10})?", re.ASCII)
_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


def work_of(
    doc: SpecDoc | GroupDoc, found: Findings, path: Path = ("spec",)
) -> tuple[Work | None, tuple[str, ...]]:
    """Return the work and the needs that it implies; None and problems in `found` if it is invalid.

    `path` is where the document is in its job file.
    """
    given = [
        name
        for name, value in zip(WORKS, (doc.run, doc.command, doc.python, doc.container), strict=True)
        if value is not None
    ]
    if len(given) > 1:
        names = " and ".join(f"`{name}`" for name in given)
        both = given == ["python", "container"]
        advice = "; a call is made in a container with `environment: {image: ...}`" if both else "; keep one"
        found.add((*path, given[1]), f"{names} exclude each other{advice}")
        return None, ()
    if doc.run is not None:
        return _shell(doc.run, found, (*path, "run")), ()
    if doc.command is not None:
        return _argv(doc.command, found, (*path, "command")), ()
    if doc.python is not None:
        return _python(doc.python, found, (*path, "python")), ("python",)
    if doc.container is not None:
        return _container(doc.container, found, (*path, "container")), ("container",)
    found.add(path, "has nothing to run; add `run`, `command`, `python` or `container`")
    return None, ()


def check_text(text: str, path: Path, found: Findings) -> None:
    """Add a problem if a process cannot receive a text."""
    if "\0" in text:
        found.add(path, "contains a NUL character")
    if len(text) > MOST_WORD // 4 or not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            found.add(path, f"{shown(text)} is not UTF-8 text")
            return
        if size > MOST_WORD:
            found.add(path, f"has {size} bytes; the maximum for one argument or variable is {MOST_WORD}")


def check_plain(value: object, path: Path, found: Findings) -> None:
    """Add a problem for everything that is not plain data: text, numbers, booleans, None, lists and mappings."""
    if len(path) > MOST_DEPTH:
        found.add(path[:4], f"is nested deeper than {MOST_DEPTH} levels")
        return
    if isinstance(value, list | tuple):
        for at, item in enumerate(value):
            check_plain(item, (*path, at), found)
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(name, str):
                check_plain(item, (*path, name), found)
            else:
                found.add(path, f"the key {shown(name)} is not text; write it in quotes")
    else:
        _check_scalar(value, path, found)


def _check_scalar(value: object, path: Path, found: Findings) -> None:
    """Add a problem if a scalar would not survive JSON."""
    match value:
        case None | bool():
            pass
        case str():
            if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                found.add(path, f"{shown(value)} is not UTF-8 text")
        case int():
            if not -(2**63) <= value < 2**63:
                found.add(path, f"{shown(value)} is too large")
        case float():
            if not abs(value) < float("inf"):
                found.add(path, f"{value} is not a finite number")
        case _:
            found.add(path, f"a {type(value).__name__} is not plain data")


def check_env(env: dict[str, str], found: Findings, path: Path = ("spec", "env")) -> None:
    """Check that names and values are valid for a process."""
    for name, value in env.items():
        if not name or "=" in name or " " in name or not name.isprintable():
            message = f"{shown(name)} is not a valid variable name; write it without `=` and spaces"
            found.add((*path, name), message)
        else:
            check_text(name, (*path, name), found)
        check_text(value, (*path, name), found)


def _shell(run: str, found: Findings, path: Path) -> Work | None:
    """Read a shell line."""
    if not run.strip():
        found.add(path, "is empty; write a command")
        return None
    check_text(run, path, found)
    return Shell(run)


def _argv(command: list[str], found: Findings, path: Path) -> Work | None:
    """Read a program and its arguments."""
    if not command or not command[0]:
        found.add(path, "is empty; write a command")
        return None
    _check_words(command, path, found)
    return Argv(tuple(command))


def _python(doc: PythonDoc, found: Findings, path: Path) -> Work:
    """Read a Python function and its arguments."""
    if (doc.call is None) == (doc.function is None):
        found.add(path, "needs either `call` or `function`")
    if doc.call is not None:
        if _CALL.fullmatch(doc.call) is None:
            found.add((*path, "call"), f"{shown(doc.call)} is not a function; write module:function")
        for name in ("arguments", "items"):
            if getattr(doc, name):
                found.add((*path, name), "is only allowed with `function`; use `args` with `call`")
    elif doc.args:
        found.add((*path, "args"), "is only allowed with `call`; use `arguments` with `function`")
    for name, digest in (("function", doc.function), ("items", doc.items)):
        if digest is not None and not is_digest(digest):
            found.add((*path, name), f"{shown(digest)} is not a SHA-256; write 64 hexadecimal digits")
    if doc.values:
        _check_values(doc, (*path, "values"), len(path) > 2, found)
    check_plain(doc.args, (*path, "args"), found)
    values = tuple([EarlierValue(each) for each in doc.values])
    return PythonCall(
        doc.call or "", tuple(doc.args), doc.function or "", doc.arguments, doc.items or "", doc.first, values
    )


def _check_values(doc: PythonDoc, path: Path, grouped: bool, found: Findings) -> None:
    """Check the earlier calls whose values a call gets."""
    if doc.function is None:
        found.add(path, "is only allowed with `function`")
    elif grouped:
        found.add(path, "is not allowed in groups")
    for at, each in enumerate(doc.values):
        if _FULL_ID.fullmatch(each) is None:
            found.add((*path, at), f"{shown(each)} is not the full id of a job")


def _container(doc: ContainerDoc, found: Findings, path: Path) -> Work:
    """Read an image and its command."""
    check_image(doc.image, (*path, "image"), found)
    _check_words(doc.command, (*path, "command"), found)
    if doc.manifest is None:
        return Container(doc.image, tuple(doc.command))
    before = len(found.found)
    check_plain(doc.manifest, (*path, "manifest"), found)
    whole = len(found.found) == before
    return Container(doc.image, tuple(doc.command), manifest_text(doc.manifest) if whole else None)


def check_image(image: str, path: Path, found: Findings) -> None:
    """Add a problem if a container engine cannot take a text as the name of an image."""
    # It would take a leading dash for an option.
    if image.startswith("-") or any(letter.isspace() for letter in image) or len(image) > 1000:
        found.add(path, f"{shown(image)} is not a valid image name")
    check_text(image, path, found)


def manifest_text(manifest: dict[str, Any]) -> str:
    """Return a manifest as JSON, always the same for the same content."""
    return msgspec.json.encode(manifest, order="deterministic").decode()


def _check_words(words: list[str], path: Path, found: Findings) -> None:
    """Check that a process can receive these words."""
    for at, word in enumerate(words):
        if "\0" in word or len(word) > MOST_WORD // 4 or not word.isascii():
            check_text(word, (*path, at), found)
