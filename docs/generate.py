"""Writes those parts of the docs that the code already says: figures, events, and what reasons mean.

`make docs` calls it. A test compares what is committed with what it would write. A generated part stands between two comments,
`<!-- generated: NAME -->` and `<!-- end -->`; all around it is written by hand.
"""
# ruff: noqa: INP001 - a script beside the pages that it writes

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

from msgspec import Struct

from spillover.clusters.kubernetes.checks import NEEDS
from spillover.core import events, transitions
from spillover.model import reasons

DOCS: Final = Path(__file__).parent
PART: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def layers() -> str:
    """The layers of the package, the top first, as import-linter checks them."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (house,) = (contract for contract in contracts if contract["id"] == "house")
    rows = [layer.replace("|", "·") for layer in house["layers"]]
    width = max(map(len, rows)) + 4
    line = "+" + "-" * width + "+"
    boxes = [f"{line}\n|{row.center(width)}|" for row in rows]
    return "```text\n" + "\n".join([*boxes, line]) + "\n```\n"


def job_life() -> str:
    """The life of a job."""
    return f"```mermaid\n{transitions.figure()}```\n"


def agent_life() -> str:
    """The life of an agent."""
    return f"```mermaid\n{transitions.agent_figure()}```\n"


def node_life() -> str:
    """The life of a node of an external cluster."""
    return f"```mermaid\n{transitions.node_figure()}```\n"


def cluster_life() -> str:
    """The health of an external cluster."""
    return f"```mermaid\n{transitions.cluster_figure()}```\n"


def cluster_lives() -> str:
    """The life of a cluster."""
    return f"```mermaid\n{transitions.life_figure()}```\n"


def machine_life() -> str:
    """The life of a rented machine."""
    return f"```mermaid\n{transitions.machine_figure()}```\n"


def event_types() -> str:
    """Every event with its fields."""
    parts = []
    for kind in get_args(events.AnyEvent):
        parts.append(f"### `{kind.__struct_config__.tag}`\n\n{_told(kind)}\n")
        rows = [
            f"| `{name}` | {_shown(written)} | {meaning or _usual(name, written)} |\n"
            for name, written, meaning in _fields(kind)
        ]
        parts.append("| field | type | meaning |\n| --- | --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def kubernetes_needs() -> str:
    """What a server does on a cluster of Kubernetes, and has to be allowed to."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for need in NEEDS:
        where = "all namespaces" if need.everywhere else "the namespace of its Jobs"
        name = need.resource + (f"/{need.subresource}" if need.subresource else "")
        verbs.setdefault((where, need.group or '""', name), []).append(need.verb)
    rows = [
        f"| {where} | `{group}` | `{name}` | {', '.join(found)} |\n"
        for (where, group, name), found in verbs.items()
    ]
    return "| in | API group | resource | verbs |\n| --- | --- | --- | --- |\n" + "".join(rows)


def reason_codes() -> str:
    """Every code of a reason with its meaning."""
    rows = [
        f"| `{kind.__struct_config__.tag}` | {'never' if kind.never else 'not now'} | {_told(kind)} | {_names(kind)} |\n"
        for kind in get_args(reasons.Reason)
    ]
    return "| code | kind | meaning | fields |\n| --- | --- | --- | --- |\n" + "".join(rows)


WRITERS: Final[dict[str, Callable[[], str]]] = {
    "layers": layers,
    "job-life": job_life,
    "agent-life": agent_life,
    "node-life": node_life,
    "cluster-life": cluster_life,
    "life": cluster_lives,
    "machine-life": machine_life,
    "events": event_types,
    "reasons": reason_codes,
    "kubernetes-needs": kubernetes_needs,
}

_USUAL: Final = {
    "job": "id of the job",
    "at": "when, nanoseconds UTC",
    "who": "who did it; `spillover` is the server itself",
    "why": "a [reason](reasons.md), or one word",
    "attempt": "number of the attempt, from 1",
    "seq": "number of the lease; rises at every change of owner",
    "cluster": "name",
    "node": "name of the agent",
    "array": "id of the array",
    "index": "of the member",
    "state": "of the job",
    "user": "who submitted it",
    "name": "of the job",
    "project": "of the job",
    "queue": "of the job",
    "priority": "higher first",
    "shape": "resources in thousandths of a CPU, bytes and GPUs; needs; tasks; burst",
    "terms": "walltime, estimate, grace, lost_after, retry, max_cost, data, on_cluster_failure",
    "deadline": "nanoseconds UTC; null is none",
    "not_before": "nanoseconds UTC; null is none",
    "key": "idempotency key; null is none",
    "jobs": "ids",
    "machine": "id of the machine",
    "machines": "ids",
    "provider_id": "the provider's id of the machine",
    "cause": "`capacity`, `quota`, `invalid`, `auth` or `lost`",
    "on": "id of the job that ended",
    "budgets": "of (project or user), name, per, limit",
    "queues": "as in spill.yaml; see `QueueSpec`",
    "clusters": "name, kind, role, price, billing, gangs, startup, region, labels, runs, most, most_jobs",
    "incarnation": "number of the registration",
    "capacity": "thousandths of a CPU, bytes, GPUs",
    "labels": "as configured",
    "health": "`ready`, `degraded`, `failed` or `clearing`: [clusters](clusters.md)",
    "epoch": "number of the server's start",
    "policies": "name and options for each axis",
    "now": "the time that the cycle was told, nanoseconds UTC",
    "seed": "number of the cycle",
    "exit_code": "null if it was killed or never ran",
    "signal": "null if it exited or never ran",
    "usage": "nanoseconds run, nanoseconds of CPU, bytes of memory at the peak",
}
"""What fields mean that need no words of their own in the code."""


def _usual(name: str, written: str) -> str:
    """What a field means that says nothing of itself."""
    return "ranges of indexes, first and last; empty is none" if "Range" in written else _USUAL[name]


def _told(kind: type) -> str:
    """What a class says of itself, in one line."""
    return " ".join((inspect.getdoc(kind) or "").split())


def _names(kind: Any) -> str:
    return ", ".join(f"`{name}`" for name in kind.__struct_fields__) or "-"


def _shown(written: str) -> str:
    """A type as JSON readers see it."""
    text = written.replace("JobId", "str").replace("ClusterName", "str").replace("NodeName", "str")
    text = text.replace("MachineId", "str").replace("OfferKey", "str")
    return "`" + text.replace("bytes", "hex").replace("None", "null").replace("|", "or") + "`"


def _fields(kind: type[Struct]) -> Iterator[tuple[str, str, str]]:
    """Name, type and docstring of each field, in order, those of its bases first."""
    for base in reversed(kind.__mro__[: kind.__mro__.index(Struct)]):
        (body,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(body, ast.ClassDef)  # noqa: S101 - what a class is written as
        for line, after in zip(body.body, [*body.body[1:], None], strict=True):
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            doc = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                doc = " ".join(str(after.value.value).split())
            if line.target.id in kind.__struct_fields__:
                yield line.target.id, ast.unparse(line.annotation), doc


def generated(text: str) -> str:
    """A page with its generated parts as they are now."""
    return PART.sub(lambda found: f"{found[1]}{WRITERS[found[2]]()}{found[3]}", text)


def main() -> int:
    """Write every page, and print which ones changed."""
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text()
        after = generated(before)
        if after != before:
            page.write_text(after)
            print(f"wrote {page.relative_to(DOCS.parent)}")  # noqa: T201 - what a person waits for
    return 0


if __name__ == "__main__":
    sys.exit(main())
