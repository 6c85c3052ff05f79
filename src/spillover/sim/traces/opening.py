"""Opens a trace, and detects its format by name and first line."""

from spillover.sim.trace import Trace
from spillover.sim.traces.rows import Rows, refuse

SYNTHETIC = "synthetic:"
"""Prefix of a recipe for synthetic jobs."""


def read_trace(path: str, *, skip_bad: bool = False) -> Trace:
    """Read the jobs of a file."""
    data = _content(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refuse(path, f"line {line} is not UTF-8 text") from None
    if not text.strip():
        raise refuse(path, "is empty")
    rows = Rows(path, skip=skip_bad)
    first = text[: text.find("\n") if "\n" in text else len(text)]
    name = path.lower().removesuffix(".gz")
    if name.endswith(".swf") or first.startswith(";"):
        from spillover.sim.traces import from_swf  # noqa: PLC0415 - each run needs one format

        trace = from_swf.read(text, rows)
    elif first.count("|") > first.count(","):  # CSV rows may contain "|", and sacct rows ","
        from spillover.sim.traces import from_sacct  # noqa: PLC0415 - each run needs one format

        if not from_sacct.is_sacct(first):
            raise refuse(
                path, f"the first line is not a header of sacct, as it has no JobID; {from_sacct.HOW}"
            )
        trace = from_sacct.read(text, rows)
    else:
        from spillover.sim.traces import from_csv  # noqa: PLC0415 - each run needs one format

        trace = from_csv.read(text, rows)
    if not trace.jobs:
        raise refuse(path, "has no jobs that ran")
    return trace


def _content(path: str) -> bytes:
    """Return the content of a file, decompressed."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes as long to load as a small trace to read
        data = file.read()
    if not data.startswith(b"\x1f\x8b"):
        return data
    import zlib  # noqa: PLC0415 - only for compressed files

    parts: list[bytes] = []
    while data.strip(b"\0"):  # gzip files may have several members
        unpacker = zlib.decompressobj(wbits=31)
        try:
            parts.append(unpacker.decompress(data))
        except zlib.error as error:
            raise refuse(path, f"cannot be decompressed: {error}") from None
        if not unpacker.eof:
            raise refuse(path, "is truncated; copy it again")
        data = unpacker.unused_data
    return b"".join(parts)
