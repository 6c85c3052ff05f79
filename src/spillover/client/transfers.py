"""Transfers files to and from the server, without I/O. Files that the receiver already has are not sent."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from spillover.client import asks
from spillover.client.asks import ask
from spillover.client.blobs import Blob, Landing, Moving, Progress, Upload, batches, moving
from spillover.client.errors import Refused
from spillover.client.fetching import landed, plan
from spillover.client.flows import ReadingFlow
from spillover.client.packing import InputSizes, changed, needs_packing, pack
from spillover.client.steps import Flow, Work
from spillover.model.units import format_memory
from spillover.ports.blobs import Source, digest_of
from spillover.wire import endpoints
from spillover.wire.parameters import FilesQuery

log = logging.getLogger("spillover.client")


def missing(digests: Iterable[str]) -> Flow[list[str]]:
    """Return the distinct blobs that the server does not have."""
    found: list[str] = []
    for batch in batches(digests):
        found += yield from asks.missing(batch)
    return found


def put_blob(source: Source, progress: Progress | None) -> Flow[str]:
    """Upload bytes or a file under its SHA-256, and return that."""
    digest = yield from Work(lambda: digest_of(source))
    if (yield from missing([digest])):
        yield from asks.put_blob(digest, Upload(source, progress))
    return digest


def save_blob(digest: str, path: Path, progress: Progress | None) -> Flow[None]:
    """Download a blob to a file, which appears only when it is complete."""
    with Landing(path, progress) as file:
        yield from ReadingFlow(Blob(digest), file.write)


def send_inputs(
    docs: list[dict[str, Any]],
    progress: Moving | None = None,
    sizes: Callable[[InputSizes], object] | None = None,
) -> Flow[list[dict[str, Any]]]:
    """Upload missing inputs, after telling their sizes; return the documents with their digests."""
    if not any(map(needs_packing, docs)):
        return docs
    most = (yield from ask(endpoints.SERVER)).max_inputs
    packed = yield from Work(lambda: pack(docs, most))
    unsent = yield from missing(packed.sources)
    if packed.files:
        counted = packed.told(unsent)
        whole, rest = format_memory(counted.size), format_memory(counted.missing)
        log.info("%d files, %sB; %sB to send", counted.files, whole, rest)
        if sizes is not None:
            sizes(counted)
    told = moving(packed.bytes_of(unsent), progress) if unsent else None
    for digest in unsent:
        try:
            yield from asks.put_blob(digest, Upload(packed.sources[digest], told))
        except Refused as error:
            raise changed(packed.sources[digest], error) from None
    return packed.documents


def fetch(
    job: str, folder: Path, attempt: int | None, progress: Moving | None, *, force: bool
) -> Flow[list[Path]]:
    """Write the output files of a job to a folder; return those that were missing or differed."""
    view = yield from ask(endpoints.FILES, FilesQuery(job, attempt))
    todo = yield from Work(lambda: plan(view, folder, force=force))
    told = moving(todo.total, progress) if todo.wanted else None
    for file in todo.wanted:
        yield from save_blob(file.digest, todo.path(file), told)
        landed(todo.path(file), file)
    return [todo.path(file) for file in todo.wanted]
