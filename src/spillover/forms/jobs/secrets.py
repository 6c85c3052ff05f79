"""Reads which secrets a job gets, and as which variables or files. A job has their names only, never a value."""

import re
from collections.abc import Iterator
from typing import Final

from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import check_name
from spillover.model.containers import steers
from spillover.model.job import SecretUse
from spillover.model.secrets import SECRETS_FOLDER
from spillover.wire.jobfile import SecretDoc, SpecDoc

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LONGEST: Final = 256
_OTHER: Final = re.compile(r"[^A-Z0-9_]", re.ASCII)
_OWN: Final = "SPILL_"


def read_secrets(doc: SpecDoc, found: Findings) -> tuple[SecretUse, ...]:
    """Return the secrets of a job, and add the problems with them."""
    uses: list[SecretUse] = []
    in_containers = any(each.container is not None for each in (doc, *(doc.groups or ())))
    taken: dict[str, str] = {}
    for at, entry in enumerate(doc.secrets):
        path = ("spec", "secrets", at)
        one = parsed(entry) if isinstance(entry, str) else entry
        before = len(found.found)
        check_name(one.name, path if isinstance(entry, str) else (*path, "name"), found)
        if len(found.found) > before:
            continue
        variable = default_variable(one.name, file=one.file) if one.to is None else one.to
        if (wrong := _wrong(variable, in_containers=in_containers)) is not None:
            found.add(path, wrong)
        elif variable in taken:
            found.add(path, f"{variable} is already {taken[variable]}; name another variable")
        elif any(variable in env for env in _environments(doc)):
            found.add(path, f"{variable} is also in `env`; remove it there, or name another variable")
        else:
            taken[variable] = f"secret {one.name}"
            uses.append(SecretUse(one.name, variable, one.file))
    return tuple(uses)


def parsed(text: str) -> SecretDoc:
    """Return what `NAME` or `NAME=VARIABLE` means."""
    name, equals, variable = text.partition("=")
    return SecretDoc(name, variable if equals else None)


def default_variable(name: str, *, file: bool) -> str:
    """Return the variable of a secret for which a job names none: db-password becomes DB_PASSWORD."""
    variable = _OTHER.sub("_", name.upper())
    variable = f"_{variable}" if variable[:1].isdigit() else variable
    return f"{variable}_FILE" if file else variable


def _wrong(variable: str, *, in_containers: bool) -> str | None:
    """Return why a variable cannot be that of a secret; None if it can."""
    if _VARIABLE.fullmatch(variable) is None or len(variable) > _LONGEST:
        return (
            f"{shown(variable)} is not the name of a variable; write letters, digits and _, as in DB_PASSWORD"
        )
    if variable.startswith(_OWN):
        return f"{variable}: names that begin with {_OWN} are ours ({SECRETS_FOLDER} is the folder of secret files); name another variable"
    if in_containers and steers(variable):
        return f"{variable} would configure the container engine; name another variable"
    return None


def _environments(doc: SpecDoc) -> Iterator[dict[str, str]]:
    """Yield the variables that a job sets itself."""
    yield doc.env
    for group in doc.groups or ():
        yield group.env
