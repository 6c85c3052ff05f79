"""Says what a job is, by which its runtime is learned: whether its name says it, and digests of what it runs.

A submission computes this once, and the events of the job carry it, so that a replay needs no stored specs.
"""

import hashlib
from collections.abc import Sequence
from posixpath import basename
from typing import Final

from msgspec import msgpack
from msgspec.structs import replace

from spillover.core.learned.runtimes import ANYTHING, OF_PROGRAM
from spillover.forms.jobs.meaning import default_name, first_word
from spillover.model.job import Argv, Container, JobSpec, PythonCall, Shell, Work

_SYSTEM: Final = ("/bin/", "/sbin/", "/usr/")
"""Where programs of the system are."""
_MORE_THAN_WORDS: Final = frozenset("\n;&|<>()$`'\"\\")
"""What makes a line for the shell more than a program and its arguments."""
_FIRST_WORDS: Final = 64
"""Words of a command among which its program is looked for."""
_BEGIN_PATHS: Final = frozenset("./_~")


def says_what(name: str, work: Work) -> bool:
    """Return whether a name says what a job does: not that of a program or an image, which does different things."""
    match work:
        case Argv(command=[program, *_]):
            pass
        case Shell(run=run):
            program = first_word(run)
        case Container():
            program = ""
        case _:
            return True
    own_script = "/" in program and not program.startswith(_SYSTEM)
    return own_script or name != default_name(work)


def command_of(spec: JobSpec) -> bytes:
    """Return a digest of the program that a job runs, zeros if it is not clear, and one of all that says what it runs."""
    works = [_lasting(spec.work), *[_lasting(group.work) for group in spec.groups]]
    files = [(file.path, file.digest) for file in spec.files]
    program = _program_of(spec.work)
    whole = _digest(msgpack.encode((works, spec.workdir, files)))
    return (_digest(program.encode()) if program else bytes(OF_PROGRAM)) + whole


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=OF_PROGRAM).digest()


def _lasting(work: Work) -> Work:
    """Return work without what differs each time that it is submitted, or for each member of an array."""
    if type(work) is not PythonCall or not (work.values or work.items):
        return work
    if work.items:  # each member has an argument of its own
        work = replace(work, items="", first=0, arguments=b"")
    return replace(work, values=())


def _program_of(work: Work) -> str:
    """Return the program or script that work runs, with whatever arguments; empty if that is not clear."""
    match work:
        case Argv(command=command):
            return _own_word(command)
        case Shell(run=run):
            return "" if _MORE_THAN_WORDS.intersection(run.strip()) else _own_word(run.split())
        case PythonCall(call=call):
            return f"{call}()"
        case Container(image=image, command=command):
            return f"{image} {_own_word(command)}"


def _own_word(words: Sequence[str]) -> str:
    """Return the first word that names a program or script of one's own, beyond `python`, options and the text of a script."""
    for word in words[:_FIRST_WORDS]:
        named = word[:1].isalpha() or word[:1] in _BEGIN_PATHS
        if named and "=" not in word and len(word.split()) == 1 and basename(word) not in ANYTHING:
            return word
    return ""
