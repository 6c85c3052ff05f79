"""Bodies of live sessions with tasks."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Side = Annotated[int, Meta(ge=0, le=65535)]


class SessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A live connection to a task that runs."""

    kind: Literal["exec", "attach", "forward"]
    """Run a command beside the task, attach to its terminal, or connect to a port of its machine."""
    task: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Number of the task, in a gang."""
    command: Annotated[list[str], Meta(max_length=10_000)] = []
    """Program and arguments; for `exec`."""
    terminal: bool = False
    """Whether the command runs in a terminal; for `exec`."""
    rows: Side = 0
    """Size of that terminal; 0 if unknown."""
    columns: Side = 0
    term: Annotated[str, Meta(max_length=100)] = ""
    """Kind of that terminal, such as `xterm-256color`."""
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """TCP port; for `forward`."""


class SessionView(Struct, frozen=True):
    """A session. Read its output within 30 seconds."""

    id: str
    job: str
    attempt: int
    task: int
    cluster: str
    node: str


class SessionInput(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the input of a session: bytes of frames."""

    after: Annotated[int, Meta(ge=0, le=2**62)]
    """Bytes of input that were sent before. What the server has already is skipped, so a part may be sent again."""
    data: Annotated[bytes, Meta(max_length=256 << 10)]
    """Base64."""


class SessionTaken(Struct, frozen=True):
    """How much input the server has passed on."""

    received: int
    """Bytes."""
