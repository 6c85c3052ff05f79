"""How people sign in, as spill.yaml says."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillover.config.read import read_config
from spillover.forms.problems import BadForm
from spillover.model.identity import GroupRights, Oidc
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY, HOUR
from spillover.server.local_files import refused_files

HEAD = "apiVersion: spillover/v1\nkind: Config\n"
STAFF = {"group": "staff", "role": "read"}
LEAST: dict[str, Any] = {
    "issuer": "https://login.example.org/lab",
    "client_id": "spillover",
    "groups": [STAFF],
}
FULL = """\
access:
  sign_in_lasts: 30d
  oidc:
    name: Lab
    issuer: https://login.example.org/lab
    client_id: spillover
    client_secret_file: /etc/secret
    device_client_id: spill-cli
    scope: openid groups
    user_claim: email
    groups_claim: realm_access.roles
    domain: example.org
    lasts: 1h
    redirect_uri: https://spill.example.org/v1/sign-in/oidc/callback
    ca: ca.pem
    groups:
    - {group: staff, role: read}
    - {group: vision, role: maintain, project: vision}
"""


def problems(access: dict[str, Any]) -> list[str]:
    with pytest.raises(BadForm) as raised:
        read_config(f"{HEAD}access: {json.dumps(access)}")
    return [f"{each.path}: {each.message}" for each in raised.value.problems]


def test_a_provider_is_read() -> None:
    read = read_config(HEAD + FULL).access
    assert read.sign_in_lasts == 30 * DAY
    assert read.oidc == Oidc(
        issuer="https://login.example.org/lab",
        client_id="spillover",
        name="Lab",
        client_secret_file="/etc/secret",
        device_client_id="spill-cli",
        scope="openid groups",
        user_claim="email",
        groups_claim="realm_access.roles",
        domain="example.org",
        groups=(GroupRights("staff", TokenRole.READ), GroupRights("vision", TokenRole.MAINTAIN, "vision")),
        lasts=HOUR,
        redirect_uri="https://spill.example.org/v1/sign-in/oidc/callback",
        ca="ca.pem",
    )


def test_most_of_it_may_be_left_out() -> None:
    read = read_config(f"{HEAD}access: {json.dumps({'oidc': LEAST})}").access
    assert read.oidc == Oidc(
        "https://login.example.org/lab",
        "spillover",
        "login.example.org",
        device_client_id="spillover",
        groups=(GroupRights("staff", TokenRole.READ),),
    )
    assert read_config(HEAD).access.oidc is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"client_id": None}, "access.oidc.client_id: is missing"),
        ({"groups": []}, "access.oidc.groups: "),
        ({"issuer": "http://login.example.org"}, "would send sign-ins in the clear"),
        ({"issuer": "login"}, "access.oidc.issuer: 'login' is not a URL; write https://HOST/..."),
        ({"issuer": "https://a.example/?x=1"}, "has a query or a fragment; leave it out"),
        ({"redirect_uri": "https://a.example/"}, "does not end with /v1/sign-in/oidc/callback"),
        ({"scope": "groups"}, "access.oidc.scope: 'groups' lacks openid"),
        ({"domain": "@example.org"}, "is not a domain; write it without @"),
        ({"lasts": "1s"}, "access.oidc.lasts: "),
        ({"secret": "x"}, "access.oidc.secret: unknown field"),
        ({"groups": [{"group": "a", "role": "agent"}]}, "'agent' must be"),
        ({"groups": [{"group": "a", "role": "read", "project": "a b"}]}, "'a b' is not a project"),
        ({"groups": [{"group": "a", "role": "admin", "project": "p"}]}, "cannot limit the role admin"),
        ({"groups": [STAFF, STAFF]}, "access.oidc.groups[1].group: 'staff' is there twice"),
    ],
)
def test_what_is_wrong_is_one_line(changes: dict[str, Any], told: str) -> None:
    given = {name: value for name, value in (LEAST | changes).items() if value is not None}
    (line,) = problems({"oidc": given})
    assert told in line


def test_a_sign_in_lasts_at_least_a_minute() -> None:
    (line,) = problems({"sign_in_lasts": "5s"})
    assert line.startswith("access.sign_in_lasts: ")


def test_files_that_cannot_be_read_keep_a_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    path = tmp_path / "spill.yaml"
    files = {"client_secret_file": f"{tmp_path}/none", "ca": f"{tmp_path}/ca.pem"}
    path.write_text(HEAD + yaml.safe_dump({"access": {"oidc": files | LEAST}}, sort_keys=False))
    wrong = refused_files(read_config(path.read_text(), str(path)), str(path))
    assert [str(each).removeprefix(f"{path}:") for each in wrong] == [
        f"5: access.oidc.client_secret_file: {tmp_path}/none: No such file or directory",
        f"6: access.oidc.ca: {tmp_path}/ca.pem has no certificate of an authority, as PEM",
    ]
