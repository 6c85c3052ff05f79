"""Secrets that a job names: as variables or files, in each form in which jobs are written."""

from typing import Any

import pytest

from spillover.api.grpc.documents import document_of
from spillover.client.documents import from_fields
from spillover.forms.jobs.options import as_flags, doc_from_options
from spillover.forms.jobs.reading import read_job, to_doc
from spillover.forms.jobs.secrets import default_variable
from spillover.forms.problems import BadForm
from spillover.model.job import SecretUse
from spillover.wire import jobs_pb2 as pb

DB = SecretUse("db-password", "DB_PASSWORD")


def a_doc(*secrets: Any, **spec: Any) -> dict[str, Any]:
    body = {"run": "true", **spec} if not {"container", "python", "groups"} & spec.keys() else spec
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {**body, "secrets": list(secrets)}}


def read(*secrets: Any, **spec: Any) -> tuple[SecretUse, ...]:
    read = read_job(a_doc(*secrets, **spec)).spec
    assert read_job(to_doc(read)).spec == read
    return read.secrets


def refused(*secrets: Any, **spec: Any) -> list[str]:
    with pytest.raises(BadForm) as caught:
        read_job(a_doc(*secrets, **spec))
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def test_a_secret_is_a_variable_unless_the_job_wants_a_file() -> None:
    assert read("db-password") == (DB,)
    assert read({"name": "db-password"}) == (DB,)
    assert read("db-password=PGPASSWORD") == (SecretUse("db-password", "PGPASSWORD"),)
    assert read({"name": "db-password", "as": "PGPASSWORD"}) == (SecretUse("db-password", "PGPASSWORD"),)
    assert read({"name": "license", "file": True}) == (SecretUse("license", "LICENSE_FILE", file=True),)
    assert read("db", {"name": "db", "file": True}) == (
        SecretUse("db", "DB"),
        SecretUse("db", "DB_FILE", True),
    )


@pytest.mark.parametrize(
    ("name", "variable"), [("db", "DB"), ("a.b-c_d", "A_B_C_D"), ("2fa", "_2FA"), ("Token", "TOKEN")]
)
def test_the_usual_variable_is_the_name_in_capitals(name: str, variable: str) -> None:
    assert default_variable(name, file=False) == variable
    assert default_variable(name, file=True) == f"{variable}_FILE"


def test_only_agents_run_jobs_with_secrets() -> None:
    assert "secrets" in read_job(a_doc("db")).spec.shape.runs
    assert "secrets" not in read_job(a_doc()).spec.shape.runs
    assert "secrets" in read_job(a_doc("db", container={"image": "alpine"})).spec.shape.runs


def test_each_mistake_has_one_line() -> None:
    (line,) = refused("../key")
    assert line.startswith("spec.secrets[0]: '../key' is not a valid name")
    assert refused({"name": "db", "as": "a b"}) == [
        "spec.secrets[0]: 'a b' is not the name of a variable; write letters, digits and _, as in DB_PASSWORD"
    ]
    assert refused("db=") == [
        "spec.secrets[0]: '' is not the name of a variable; write letters, digits and _, as in DB_PASSWORD"
    ]
    assert refused("a=X", "db", "b=X") == ["spec.secrets[2]: X is already secret a; name another variable"]
    assert refused("db", env={"DB": "1"}) == [
        "spec.secrets[0]: DB is also in `env`; remove it there, or name another variable"
    ]
    group = {"name": "a", "run": "true", "env": {"DB": "1"}}
    assert refused("db", groups=[group]) == [
        "spec.secrets[0]: DB is also in `env`; remove it there, or name another variable"
    ]
    assert refused("a=SPILL_JOB_ID") == [
        "spec.secrets[0]: SPILL_JOB_ID: names that begin with SPILL_ are ours (SPILL_SECRETS is the folder of secret files); name another variable"
    ]
    assert "spec.secrets[0].value" in refused({"name": "db", "value": "hunter2"})[0]


def test_a_secret_does_not_configure_the_engine_of_a_container() -> None:
    assert refused("proxy=HTTP_PROXY", container={"image": "alpine"}) == [
        "spec.secrets[0]: HTTP_PROXY would configure the container engine; name another variable"
    ]
    assert read("proxy=HTTP_PROXY") == (SecretUse("proxy", "HTTP_PROXY"),)


def test_flags_name_secrets_as_variables_and_as_files() -> None:
    given = {"secret": ["db-password", "api=KEY"], "secret_file": ["license", "cert=SSL_CERT"]}
    document = doc_from_options(given, {"command": ["true"]})
    assert read_job(document).spec.secrets == (
        DB,
        SecretUse("api", "KEY"),
        SecretUse("license", "LICENSE_FILE", file=True),
        SecretUse("cert", "SSL_CERT", file=True),
    )
    with pytest.raises(BadForm) as caught:
        read_job(doc_from_options({"secret": ["no name"]}, {"command": ["true"]}))
    assert str(as_flags(caught.value)).startswith("--secret: 'no name' is not a valid name")


def test_python_and_grpc_have_the_same_field() -> None:
    document = from_fields({"run": "true", "secrets": ["db-password", {"name": "license", "file": True}]})
    license_file = SecretUse("license", "LICENSE_FILE", file=True)
    assert read_job(document).spec.secrets == (DB, license_file)
    uses = [pb.SecretUse(name="db-password"), pb.SecretUse(name="license", file=True)]
    typed = pb.NewJob(job=pb.Job(run="true", secrets=[*uses, pb.SecretUse(name="a", variable="B")]))
    assert read_job(document_of(typed)).spec.secrets == (DB, license_file, SecretUse("a", "B"))
