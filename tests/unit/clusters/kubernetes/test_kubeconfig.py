"""How a cluster is reached is read as kubectl reads it, and what is wrong is told in one line."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillover.clusters.kubernetes.api.kubeconfig import Access, NoAccess, Program, User, Variable, access_of
from spillover.clusters.kubernetes.opening import open_cluster
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.model.ids import ClusterName
from tests.support.kubernetes import Leading


def options(**fields: Any) -> KubernetesOptions:
    return KubernetesOptions(cluster=ClusterName("onprem"), owner="me", **fields)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def a_kubeconfig(**changes: Any) -> dict[str, Any]:
    """Two contexts, as `kind` writes them."""
    cluster = {"server": "https://127.0.0.1:6443/", "certificate-authority-data": encoded("CA")}
    users = [
        {
            "name": "kind-onprem",
            "user": {"client-certificate-data": encoded("C"), "client-key-data": encoded("K")},
        },
        {"name": "robot", "user": {"token": "t0ken"}},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kind-onprem",
        "clusters": [{"name": "kind-onprem", "cluster": cluster | changes.pop("cluster", {})}],
        "users": [*users, {"name": "other", "user": changes.pop("user", None)}],
        "contexts": [
            {"name": "kind-onprem", "context": {"cluster": "kind-onprem", "user": "kind-onprem"}},
            {"name": "robots", "context": {"cluster": "kind-onprem", "user": "robot", "namespace": "batch"}},
            {"name": "others", "context": {"cluster": "kind-onprem", "user": "other"}},
        ],
    } | changes


def written(folder: Path, document: Any, name: str = "config") -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def test_the_current_context_counts_unless_another_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, a_kubeconfig())
    assert access_of(options(kubeconfig=path), {}, tmp_path) == Access(
        "https://127.0.0.1:6443",
        User(certificate=b"C", key=b"K"),
        "CA",
        origin=f"context 'kind-onprem' of {path}",
    )
    named = access_of(options(kubeconfig=path, context="robots"), {}, tmp_path)
    assert named.user == User(token="t0ken")
    assert named.namespace == "batch"


def test_files_are_found_where_kubectl_looks_and_several_count_as_one(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube", a_kubeconfig())
    assert access_of(options(), {}, tmp_path).server == "https://127.0.0.1:6443"
    first = written(tmp_path, {"current-context": "robots"}, "first")
    second = written(tmp_path, a_kubeconfig(cluster={"server": "https://second"}), "second")
    environ = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}"}
    found = access_of(options(), environ, tmp_path)
    assert (found.server, found.namespace) == ("https://second", "batch")


def test_files_that_are_named_lie_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("AUTHORITY")
    user = {"tokenFile": "token", "client-certificate": "c.pem", "client-key": str(tmp_path / "k.pem")}
    cluster = {
        "certificate-authority-data": "",
        "certificate-authority": "ca.pem",
        "tls-server-name": "api",
        "proxy-url": "http://proxy",
        "insecure-skip-tls-verify": True,
    }
    path = written(tmp_path, a_kubeconfig(cluster=cluster, user=user))
    found = access_of(options(kubeconfig=path, context="others"), {}, tmp_path)
    assert found.authority == "AUTHORITY"
    assert (found.server_name, found.proxy, found.unchecked) == ("api", "http://proxy", True)
    assert found.user == User(tmp_path / "token", tmp_path / "c.pem", tmp_path / "k.pem")


def test_a_program_may_say_who_we_are(tmp_path: Path) -> None:
    program = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["eks", "get-token"],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "get it",
    }
    path = written(tmp_path, a_kubeconfig(user={"exec": program}))
    found = access_of(options(kubeconfig=path, context="others"), {}, tmp_path).user.program
    assert isinstance(found, Program)
    assert (found.command, found.args, found.env, found.install_hint) == (
        "aws",
        ("eks", "get-token"),
        (Variable("A", "b"),),
        "get it",
    )


def test_a_pod_reaches_its_own_cluster_by_its_service_account(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", "CA"), ("namespace", "here\n")):
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = access_of(options(in_cluster=True), environ, tmp_path, tmp_path)
    assert found.server == "https://[fd00::1]:443"
    assert (found.user.token, found.authority, found.namespace) == (tmp_path / "token", "CA", "here")
    with pytest.raises(NoAccess, match="does not run in a pod"):
        access_of(options(in_cluster=True), {}, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("document", "context", "why"),
    [
        (a_kubeconfig(), "prod", "has no context 'prod'; known contexts: kind-onprem, others, robots"),
        (a_kubeconfig(**{"current-context": ""}), None, "has no current context; set `context` to one of"),
        ({}, "x", "has no context 'x'; known contexts: none"),
        (a_kubeconfig(clusters=[]), None, "names the cluster 'kind-onprem', which the file does not define"),
        (a_kubeconfig(users=[]), None, "names the user 'kind-onprem', which the file does not define"),
        (a_kubeconfig(cluster={"server": "nowhere"}), None, "has no server address; write https://"),
        (a_kubeconfig(cluster={"certificate-authority-data": "%"}), None, "data that is not base64"),
        (
            a_kubeconfig(user={"username": "me", "password": "x"}),
            "others",
            "uses passwords, which Kubernetes",
        ),
        (a_kubeconfig(user={"auth-provider": {"name": "gcp"}}), "others", "uses auth-provider, which"),
        (a_kubeconfig(user={"client-certificate": "c"}), "others", "only one of client-certificate"),
        (
            a_kubeconfig(user={"exec": {"command": "x", "apiVersion": "v0"}}),
            "others",
            "a program of v0; supported",
        ),
        (a_kubeconfig(user={"exec": {"command": "x", "interactiveMode": "Always"}}), "others", "a terminal"),
        (a_kubeconfig(clusters=3), None, "is not a kubeconfig: "),
        ("a: [", None, "is not YAML: "),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_told_in_one_line(
    tmp_path: Path, document: Any, context: str | None, why: str
) -> None:
    path = written(tmp_path, document)
    with pytest.raises(NoAccess) as told:
        access_of(options(kubeconfig=path, context=context), {}, tmp_path)
    assert why in str(told.value)
    assert path in str(told.value)
    assert "\n" not in str(told.value)


def test_a_kubeconfig_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="there is no kubeconfig /nowhere"):
        access_of(options(kubeconfig="/nowhere"), {}, tmp_path)
    with pytest.raises(NoAccess, match=r"no kubeconfig at .*\.kube/config; set `kubeconfig`"):
        access_of(options(), {}, tmp_path)
    cluster = {"certificate-authority-data": "", "certificate-authority": "gone.pem"}
    with pytest.raises(NoAccess, match=r"gone\.pem, which cannot be read: No such file"):
        access_of(options(kubeconfig=written(tmp_path, a_kubeconfig(cluster=cluster))), {}, tmp_path)


def test_without_the_package_that_it_needs_a_cluster_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("spillover.clusters.kubernetes.driver", "spillover.clusters.kubernetes.api.requests"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(NoAccess, match=r"needs the package aiohttp.*pip install 'spillover\[kubernetes\]'"):
        open_cluster(options(kubeconfig=written(tmp_path, a_kubeconfig())), {}, tmp_path, Leading())


def test_what_kubectl_writes_for_nothing_is_nothing(tmp_path: Path) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws", "args": None, "env": None}
    path = written(tmp_path, a_kubeconfig(user={"exec": program}))
    found = access_of(options(kubeconfig=path, context="others"), {}, tmp_path)
    assert found.user == User(program=Program("aws"))


@pytest.mark.parametrize(
    "written_so", ["token: s3cret: oops", "token: 's3cret", "token: s3cret\x01", "- s3cret"]
)
def test_a_secret_is_not_shown_because_something_is_wrong_beside_it(tmp_path: Path, written_so: str) -> None:
    path = written(tmp_path, f"users:\n- name: me\n  user:\n    {written_so}\n")
    with pytest.raises(NoAccess) as caught:
        access_of(options(kubeconfig=path), {}, tmp_path)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_vouches_for_a_cluster_may_be_named_in_any_letters(tmp_path: Path) -> None:
    path = written(
        tmp_path, a_kubeconfig(cluster={"certificate-authority-data": encoded("# Zürich\n-----BEGIN")})
    )
    assert access_of(options(kubeconfig=path), {}, tmp_path).authority == "# Zrich\n-----BEGIN"


def test_a_proxy_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, a_kubeconfig(cluster={"proxy-url": "socks5://me:s3cret@proxy:1080"}))
    with pytest.raises(NoAccess, match="a proxy-url of scheme 'socks5'; use http or https"):
        access_of(options(kubeconfig=path), {}, tmp_path)
