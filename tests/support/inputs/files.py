"""Odd data folders: files that are truncated, changed, deleted or added, also in the folder of an agent."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from spillover.agent.files.spool import Spool
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError
from tests.support.inputs.odd import Values, odd_bytes
from tests.support.inputs.serving import Broken, LiveServer
from tests.support.inputs.source import Source

DATA: Final = b"a file of a job"
DIGEST: Final = hashlib.sha256(DATA).hexdigest()
BOOK: Final = "spill.db"
FILES: Final = (
    "server.json",
    "token",
    BOOK,
    f"{BOOK}-wal",
    f"{BOOK}-shm",
    "leader.lock",
    f"blobs/{DIGEST[:2]}/{DIGEST}",
    f"blobs/{DIGEST[:2]}/not-a-digest",
    f"blobs/{'0' * 64}",
    "blobs/zz/zz",
    "blobs/half",
    f"blobs/{DIGEST[:2]}",
    "agents/n1/spool",
    "agents/n1/lock",
    "agents",
    ".token.1",
    "spill.db.new",
    "\udcff",
)
"""Paths that exist, and some that do not."""
RECORD: Final = b'["r",[["abcdefghijkl",1,1,0],"exited",5,0,null,[1,2,3],"","","",""]]\n["s",["abcdefghijkl",1,2,0],5,5,5]\n'
"""Possible content of the spool of an agent."""
CLEAR: Final = (StoreError, CommandError, OSError)
"""Errors by which a server explains in one line why it does not start."""


def _damages() -> Values:
    """Damage to a file."""
    files = st.sampled_from(FILES)
    return st.one_of(
        st.tuples(
            st.just("flip"),
            st.sampled_from([BOOK, BOOK, f"{BOOK}-wal"]),
            st.integers(0, 2**20),
            st.integers(1, 255),
        ),
        st.tuples(st.just("cut"), files, st.integers(0, 2**17)),
        st.tuples(st.just("write"), files, odd_bytes),
        st.tuples(st.just("delete"), files),
        st.tuples(st.just("folder"), files),
        st.tuples(st.just("link"), files, st.sampled_from(["/nonexistent", ".", "/dev/null", "token"])),
        st.tuples(st.just("spool"), st.integers(0, 200), odd_bytes),
    )


def _damage(data: Path, what: Sequence[Any]) -> None:
    """Apply damage to a data folder."""
    if what[0] == "spool":
        _spool(data / "spool", what[1], bytes(what[2]))
        return
    path = data / what[1]
    match what:
        case ("flip", _, offset, change) if path.is_file() and path.stat().st_size:
            content = bytearray(path.read_bytes())
            content[offset % len(content)] ^= change
            path.write_bytes(content)
        case ("cut", _, size) if path.is_file():
            os.truncate(path, min(size, path.stat().st_size))
        case ("write", _, content):
            _clear(path)
            path.write_bytes(content)
        case ("delete", _):
            _clear(path)
        case ("folder", _):
            _clear(path)
            path.mkdir()
        case ("link", _, target):
            _clear(path)
            path.symlink_to(target)
        case _:
            pass


def _clear(path: Path) -> None:
    """Remove what occupies a path, and create its parents."""
    for parent in reversed(path.parents):
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _spool(path: Path, cut: int, more: bytes) -> None:
    """Let an agent read a damaged spool."""
    path.write_bytes(RECORD[:cut] + more)
    spool = Spool(path)
    spool.left()
    spool.unanswered(1, 1)
    spool.close()


async def _begin(server: LiveServer) -> None:
    """Store a file and some jobs."""
    async with server.session() as session:
        async with session.put(f"{server.url}/v1/blobs/{DIGEST}", data=DATA) as reply:
            await reply.read()
        document = {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {"run": "true", "needs": ["nothing"]},
        }
        async with session.post(f"{server.url}/v1/jobs", json=document) as reply:
            server.jobs += (await reply.json())["jobs"]
    await server.check()


async def play(story: Sequence[Sequence[Any]]) -> None:
    """See Source: a server that starts on such a folder explains in one line why it does not, or works."""
    async with LiveServer() as server:
        await _begin(server)
        await server.kill()
        for what in story:
            _damage(server.data, what)
        try:
            await server.start()
        except CLEAR as error:
            if not str(error) or "\n" in str(error):
                raise Broken(f"it does not say in one line why it does not start: {error!r}") from error
            return
        if any(what[1] in {BOOK, f"{BOOK}-wal"} for what in story):
            server.alive()  # the journal may have other content, which cannot be detected
        else:
            await server.holds()


FILES_OF_DATA: Final = Source("files", st.lists(_damages(), min_size=1, max_size=3), partial(play))
