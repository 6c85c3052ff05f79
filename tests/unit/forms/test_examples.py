"""Every example is read, and fits the schema that editors are given."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from spillover.clusters.kinds import load_kinds
from spillover.config.read import read_config
from spillover.forms.documents import read_documents
from spillover.forms.jobs.reading import BadForm, is_manifest, read_job, read_jobs, to_doc
from spillover.forms.schema import config_schema, job_schema

EXAMPLES = Path(__file__).parents[3] / "examples"
JOBS = sorted(
    path for path in EXAMPLES.iterdir() if path.suffix in {".yaml", ".sh"} and path.name != "spill.yaml"
)


def test_schemas_are_schemas() -> None:
    jsonschema.Draft202012Validator.check_schema(job_schema())
    jsonschema.Draft202012Validator.check_schema(config_schema(load_kinds().config_doc))


def test_every_field_is_described() -> None:
    for schema in (job_schema(), config_schema(load_kinds().config_doc)):
        for name, definition in schema["$defs"].items():
            assert definition["description"], name
            for field, rule in definition["properties"].items():
                assert "description" in rule or field in {"apiVersion", "kind", "spec", "metadata"}, (
                    name,
                    field,
                )


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_an_example_is_a_job_that_can_be_written_again(path: Path) -> None:
    forms = read_jobs(path.read_bytes(), path.name, "/home/ada")
    assert forms
    for form in forms:
        document = to_doc(form)
        jsonschema.Draft202012Validator(job_schema()).validate(document)
        assert read_job(document) == form


@pytest.mark.parametrize(
    "path", [path for path in JOBS if path.suffix == ".yaml"], ids=lambda path: path.name
)
def test_an_example_fits_the_schema(path: Path) -> None:
    for document in read_documents(path.read_bytes(), path.name):
        if not is_manifest(document.value):
            jsonschema.Draft202012Validator(job_schema()).validate(document.value)


@pytest.mark.parametrize("folder", [".", "providers", "providers/k3d"])
def test_the_example_of_a_configuration_is_one(folder: str) -> None:
    text = (EXAMPLES / folder / "spill.yaml").read_bytes()
    (document,) = read_documents(text, "spill.yaml")
    jsonschema.Draft202012Validator(config_schema(load_kinds().config_doc)).validate(document.value)
    config = read_config(text, "spill.yaml")
    assert [cluster.name for cluster in config.clusters] == ["onprem", "cloud"]


def test_a_schema_refuses_unknown_fields() -> None:
    bad = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "x", "waltime": "1h"}}
    assert not jsonschema.Draft202012Validator(job_schema()).is_valid(bad)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"run": "x", "command": ["y"]},
        {"run": "x", "walltime": "soon"},
        {"run": "x", "resources": {"cpu": "-1"}},
        {"run": "x", "deadline": "2027-01-31"},
        {"run": "x", "queue": "a b"},
        {"run": "x", "env": {"A": 1}},
    ],
)
def test_an_editor_marks_what_reading_would_refuse(spec: dict[str, Any]) -> None:
    bad = {"apiVersion": "spillover/v1", "kind": "Job", "spec": spec}
    assert not jsonschema.Draft202012Validator(job_schema()).is_valid(bad)
    with pytest.raises(BadForm):
        read_job(bad)


def test_an_editor_marks_a_bad_setting() -> None:
    bad = {"apiVersion": "spillover/v1", "kind": "Config", "agents": {"lost_after": "soon"}}
    assert not jsonschema.Draft202012Validator(config_schema(load_kinds().config_doc)).is_valid(bad)
