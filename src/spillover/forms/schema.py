"""JSON schemas of what people write, for editors and for other programs."""

from typing import Any

import msgspec

from spillover.wire.configfile import ConfigDoc
from spillover.wire.jobfile import JobDoc

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> dict[str, Any]:
    """The schema of a job file."""
    return {"$schema": _DIALECT, "title": "Job"} | msgspec.json.schema(JobDoc)


def config_schema() -> dict[str, Any]:
    """The schema of spill.yaml."""
    return {"$schema": _DIALECT, "title": "Config"} | msgspec.json.schema(ConfigDoc)
