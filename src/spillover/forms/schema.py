"""JSON schemas of job files and spill.yaml, for editors and other programs.

The forms are in `wire`. This module adds rules that otherwise only parsing checks (units, names, exactly one kind of
work), so that editors show such problems while the user types.
"""

from typing import Any, Final

import msgspec

from spillover.forms.jobs.work import WORKS
from spillover.wire.configfile import ConfigDoc
from spillover.wire.jobfile import JobDoc

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_NAME: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_CPU: Final = r"^[0-9]+(\.[0-9]+)?m?$"
_MEMORY: Final = r"^[0-9]+(\.[0-9]+)?([eE]\+?[0-9]{1,2})?([KMGTPE]i|[kKMGTPE])?B?$"
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d|w))+$"
_MONEY: Final = r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$"
_TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)
_ADDRESS: Final = r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]{1,5}$"

_PATTERNS: Final[dict[str, dict[str, str]]] = {
    "Metadata": {"name": _NAME, "project": _NAME},
    "ResourcesDoc": {"cpu": _CPU, "memory": _MEMORY},
    "AfterDoc": {"job": _NAME},
    "SpecDoc": {
        "queue": _NAME,
        "max_cost": _MONEY,
        **dict.fromkeys(("walltime", "signal_before", "estimate", "lost_after", "grace"), _DURATION),
        **dict.fromkeys(("deadline", "not_before"), _TIME),
    },
    "PolicyDoc": {"unknown_runtime": _DURATION},
    "LocalDoc": {"name": _NAME, "cpu": _CPU, "memory": _MEMORY},
    "PriceDoc": dict.fromkeys(("cpu_hour", "memory_gib_hour", "gpu_hour"), _MONEY),
    "BillingDoc": dict.fromkeys(("step", "minimum"), _DURATION),
    "ClusterDoc": {"name": _NAME},
    "AgentsDoc": dict.fromkeys(("lost_after", "heartbeat"), _DURATION) | {"output_limit": _MEMORY},
    "RetentionDoc": dict.fromkeys(("jobs", "logs", "events", "audit"), _DURATION),
    "BlobsDoc": dict.fromkeys(("max_file", "max_total"), _MEMORY),
    "FilesDoc": dict.fromkeys(("max_inputs", "max_outputs", "max_state"), _MEMORY),
    "ConfigDoc": {"http": _ADDRESS, "grpc": _ADDRESS, "currency": "^[A-Z]{3}$"},
}
"""Patterns of text fields, by Struct and field. JSON schema applies them to text only."""


def job_schema() -> dict[str, Any]:
    """Return the schema of a job file."""
    return _schema(JobDoc, "Job")


def config_schema(kind: type[ConfigDoc]) -> dict[str, Any]:
    """Return the schema of spill.yaml, with the available cluster kinds."""
    return _schema(kind, "Config")


def _schema(kind: type, title: str) -> dict[str, Any]:
    """Return the refined schema of a Struct."""
    schema = {"$schema": _DIALECT, "title": title} | msgspec.json.schema(kind)
    refine(schema["$defs"])
    return schema


def refine(definitions: dict[str, Any]) -> None:
    """Add the rules that only parsing checks to the definitions of our Structs."""
    for name, definition in definitions.items():
        for field, pattern in _PATTERNS.get(name, {}).items():
            definition["properties"][field]["pattern"] = pattern
        if name == "SpecDoc":
            definition["oneOf"] = [{"required": [work]} for work in WORKS]
