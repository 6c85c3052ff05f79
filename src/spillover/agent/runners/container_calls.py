"""Packs Python calls for containers, and reads what came of them.

A container gets two folders of its call: one that it can only read, with the function, its arguments and earlier
values, and one for the value. The code that makes the call (`contained`), and `cloudpickle` for images without it, are
those of the agent.
"""

import asyncio
import marshal
import os
import shutil
import stat
from pathlib import Path
from typing import Final

import cloudpickle  # type: ignore[import-untyped]
import msgspec
from msgspec.structs import replace

import spillover
from spillover.agent.files.cache import Files, Unfetched
from spillover.agent.files.task_folders import remove_folder
from spillover.agent.leases.values import CallInImage, Exit
from spillover.agent.runners import frames
from spillover.agent.runners.contained import ASKED, CALL, CODE, VALUE
from spillover.agent.runners.invoking import INLINE
from spillover.agent.runners.manifests import ContainerPlan, UnrunnableManifest
from spillover.model.job import PythonCall
from spillover.wire.items import MAGIC

_MOST_HEAD: Final = 64
"""Bytes of a pickled function that surely have its version."""
_VERSION: Final = "version"
"""The file with the version of the interpreter, which says that it runs."""
_RUN: Final = f"""\
import sys
found = "%d.%d" % sys.version_info[:2]
with open("{VALUE}/{_VERSION}", "w") as file:
    file.write(found)
if sys.argv[1] not in ("", found) or sys.version_info < (3, 11):
    sys.exit(1)
del sys.path[0]
sys.path.append("{CODE}")
from spillover.agent.runners.contained import main
main()
"""
"""What the interpreter of an image runs. Any version of Python 3 must understand it."""


class ContainerCalls:
    """The calls in containers of one agent."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def open(self) -> None:
        """Delete what an earlier run left."""
        remove_folder(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)

    async def pack(self, name: str, job: str, work: CallInImage) -> ContainerPlan:
        """Put what a call needs into its folders, and return how to run its container.

        Raises Unfetched or OSError if that fails, and UnrunnableManifest for a text that names no image.
        """
        if work.image.startswith("-"):
            raise UnrunnableManifest(f"{work.image[:100]!r} is not the name of an image")
        given, value = self._given(name), self._value(name)
        # The user of the image may be any, and nobody else on the host can enter the folder above.
        for folder, mode in ((given, 0o755), (value, 0o777)):
            folder.mkdir(parents=True)
            folder.chmod(mode)
        call = work.call
        function = await self._bring(call.function, given, "function")
        items = await self._bring(call.items, given, "items")
        values: list[bytes | str] = [
            await self._bring(each.digest, given, f"value-{at}") if each.digest else each.value
            for at, each in enumerate(call.values)
        ]
        _, dot, index = job.rpartition(".")
        at = int(index) if dot and index.isdigit() else -1
        context = (call.call, msgspec.json.encode(call.args), function, call.arguments)
        asked = given / ASKED
        asked.write_bytes(marshal.dumps((*context, items, call.first, values, at), frames.FORM))
        asked.chmod(0o644)
        return ContainerPlan(
            work.image,
            "python3",
            ("-c", _RUN, self._wanted(name, call)),
            volumes=(
                f"{given}:{CALL}:ro",
                f"{value}:{VALUE}",
                f"{Path(spillover.__file__).parent}:{CODE}/spillover:ro",
                f"{Path(cloudpickle.__file__).parent}:{CODE}/cloudpickle:ro",
            ),
        )

    async def outcome(self, name: str, work: CallInImage, end: Exit, *, stopped: bool, said: str) -> Exit:
        """Return the end of a call, with its value or why it has none; `said` are the last words of its container."""
        if not end.spawned or end.lost:
            return end
        version = await asyncio.to_thread(self._version, name)
        if version is None:
            if stopped:
                return end
            why = f"{said}; calls need an image with python3"
            return replace(end, spawned=False, code=None, message=why)
        if (wrong := _mismatch(work.image, version, self._wanted(name, work.call))) is not None:
            return replace(end, spawned=False, code=None, message=wrong)
        try:
            return await self._with_value(name, end)
        except FileNotFoundError:
            if stopped or end.out_of_memory:
                return end
            how = f"with exit code {end.code}" if end.code is not None else f"of signal {end.signal}"
            why = end.message or f"its container ended {how} before the call returned"
        except (OSError, Unfetched) as error:
            why = f"cannot store the return value: {error}"
        return replace(end, code=end.code or 1, message=why)

    async def _with_value(self, name: str, end: Exit) -> Exit:
        """Return the end of a call with what it returned or raised."""
        path = self._value(name) / "value"
        if await asyncio.to_thread(_size_of_file, path) <= INLINE:
            return replace(end, value=await asyncio.to_thread(path.read_bytes))
        return replace(end, value_digest=await self._files.upload(path))

    async def drop(self, name: str) -> None:
        """Delete the folders of a call."""
        await asyncio.to_thread(remove_folder, self._folder / name)

    async def _bring(self, digest: str, folder: Path, name: str) -> str:
        """Put a file into the folder of a call; return its path in the container, or an empty text for no digest."""
        if not digest:
            return ""
        async with self._files.held(digest) as path:
            await asyncio.to_thread(_copy, path, folder / name)
        return f"{CALL}/{name}"

    def _wanted(self, name: str, call: PythonCall) -> str:
        """Return the version of Python that pickled a call; empty if any will do."""
        if not call.function:
            return ""
        with (self._given(name) / "function").open("rb") as file:
            head = file.read(_MOST_HEAD).partition(b"\n")[0]
        return head.removeprefix(MAGIC).decode(errors="replace") if head.startswith(MAGIC) else ""

    def _version(self, name: str) -> str | None:
        """Return the version of the interpreter of an image; None if it did not run."""
        path = self._value(name) / _VERSION
        try:
            return path.read_text(errors="replace")[:20] if _size_of_file(path) else None
        except OSError:
            return None

    def _given(self, name: str) -> Path:
        return self._folder / name / "call"

    def _value(self, name: str) -> Path:
        return self._folder / name / "value"


def _mismatch(image: str, version: str, wanted: str) -> str | None:
    """Return why an image with this version of Python cannot make a call; None if it can."""
    if wanted not in {"", version}:
        return (
            f"{image} has Python {version}, but the function was pickled by {wanted}; "
            f"name an image with Python {wanted}"
        )
    numbers = tuple([int(part) for part in version.split(".") if part.isdigit()])
    return None if numbers >= (3, 11) else f"{image} has Python {version}; calls need 3.11 or later"


def _size_of_file(path: Path) -> int:
    """Return the size of a file; raise OSError for anything else, because a link could lead out of the container."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path.name} is not a file")
    return found.st_size


def _copy(source: Path, to: Path) -> None:
    """Copy a file by a link where possible. Containers see its folder read-only."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copyfile(source, to)
    to.chmod(0o644)
