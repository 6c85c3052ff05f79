"""Finds out how to connect to a cluster: from a kubeconfig, as kubectl does, or from the service account of a pod."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct, field

from spillover.clusters.kubernetes.options import KubernetesOptions

IN_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the credentials of its service account."""
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class NoAccess(ValueError):
    """Access to a cluster is not configured, or wrongly; the message says what to do."""


class Variable(Struct, frozen=True):
    """An environment variable of a credential program."""

    name: str
    value: str


class Program(Struct, frozen=True, rename="camel"):
    """A credential program (`exec` in a kubeconfig)."""

    command: str
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    """None if kubectl wrote null, as with `args`."""
    api_version: str = EXEC_VERSIONS[0]
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class User(Struct, frozen=True):
    """The credentials of a user, or none. Files are read again later, as they may change."""

    token: str | Path | None = None
    certificate: bytes | Path | None = None
    key: bytes | Path | None = None
    program: Program | None = None


class Access(Struct, frozen=True):
    """How to connect to a cluster."""

    server: str
    """Its URL, without a slash at the end."""
    user: User
    authority: str | None = None
    """PEM certificates of its authority; None for those that the system trusts."""
    unchecked: bool = False
    """Whether to skip the check of its certificate."""
    server_name: str | None = None
    """Name in its certificate; None for the host of its URL."""
    proxy: str | None = None
    namespace: str = "default"
    origin: str = ""
    """Where these settings came from, for messages."""


class _ClusterDoc(Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _UserDoc(Struct, frozen=True, rename="kebab"):
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: Program | None = None
    username: str = ""
    auth_provider: Any = None


class _ContextDoc(Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Cluster(Struct, frozen=True):
    name: str
    cluster: _ClusterDoc = _ClusterDoc()


class _User(Struct, frozen=True):
    name: str
    user: _UserDoc | None = None


class _Context(Struct, frozen=True):
    name: str
    context: _ContextDoc = _ContextDoc()


class _Document(Struct, frozen=True, rename="kebab"):
    clusters: tuple[_Cluster, ...] | None = None
    users: tuple[_User, ...] | None = None
    contexts: tuple[_Context, ...] | None = None
    current_context: str = ""


class _Kubeconfig:
    """Several merged files; the first entry of each name counts."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.origin = ":".join(map(str, paths))
        self.current = ""
        self.clusters: dict[str, tuple[_ClusterDoc, Path]] = {}
        self.users: dict[str, tuple[_UserDoc, Path]] = {}
        self.contexts: dict[str, _ContextDoc] = {}
        for path in paths:
            document = _read(path)
            self.current = self.current or document.current_context
            for cluster in document.clusters or ():
                self.clusters.setdefault(cluster.name, (cluster.cluster, path.parent))
            for user in document.users or ():
                self.users.setdefault(user.name, (user.user or _UserDoc(), path.parent))
            for context in document.contexts or ():
                self.contexts.setdefault(context.name, context.context)


def access_of(
    options: KubernetesOptions, environ: Mapping[str, str], home: Path, in_pod: Path = IN_POD
) -> Access:
    """Return how to connect to a cluster; raise NoAccess."""
    if options.in_cluster:
        return _from_pod(environ, in_pod)
    config = _Kubeconfig(_paths(options, environ, home))
    name = options.context or config.current
    known = ", ".join(sorted(config.contexts)) or "none"
    if not name:
        raise NoAccess(f"{config.origin} has no current context; set `context` to one of {known}")
    context = config.contexts.get(name)
    if context is None:
        raise NoAccess(f"{config.origin} has no context {name!r}; known contexts: {known}")
    origin = f"context {name!r} of {config.origin}"
    if context.cluster not in config.clusters:
        raise NoAccess(f"{origin} names the cluster {context.cluster!r}, which the file does not define")
    if context.user and context.user not in config.users:
        raise NoAccess(f"{origin} names the user {context.user!r}, which the file does not define")
    cluster, folder = config.clusters[context.cluster]
    if not cluster.server.startswith(("https://", "http://")):
        raise NoAccess(f"{origin} has no server address; write https://HOST:PORT")
    if cluster.proxy_url and not cluster.proxy_url.startswith(("http://", "https://")):
        kind = cluster.proxy_url.partition(":")[0]
        raise NoAccess(f"{origin} has a proxy-url of scheme {kind!r}; use http or https")
    ca = _data(cluster.certificate_authority_data, cluster.certificate_authority, folder, origin)
    user, users = config.users.get(context.user, (_UserDoc(), folder))
    return Access(
        cluster.server.rstrip("/"),
        _user(user, users, origin),
        _text(ca, origin) if ca is not None else None,
        cluster.insecure_skip_tls_verify,
        cluster.tls_server_name or None,
        cluster.proxy_url or None,
        context.namespace or "default",
        origin,
    )


def _paths(options: KubernetesOptions, environ: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Return the kubeconfig files, as kubectl finds them."""
    if options.kubeconfig is not None:
        path = Path(options.kubeconfig)
        if not path.exists():
            raise NoAccess(f"there is no kubeconfig {path}")
        return (path,)
    named = [Path(each) for each in environ.get("KUBECONFIG", "").split(":") if each]
    paths = tuple(path for path in named or [home / ".kube" / "config"] if path.exists())
    if not paths:
        where = " and ".join(map(str, named)) or str(home / ".kube" / "config")
        raise NoAccess(
            f"there is no kubeconfig at {where}; set `kubeconfig`, or `in_cluster` if the server runs in the cluster"
        )
    return paths


def _read(path: Path) -> _Document:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise NoAccess(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return msgspec.convert(yaml.safe_load(text) or {}, _Document)
    except yaml.YAMLError as error:
        raise NoAccess(f"{path} is not YAML: {_where(error)}") from None
    except msgspec.ValidationError as error:
        raise NoAccess(f"{path} is not a kubeconfig: {error}") from None


def _where(error: yaml.YAMLError) -> str:
    """Describe an error and its position without the line itself, which may hold a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "it has characters that YAML does not allow"
    mark = error.problem_mark
    return f"{error.problem or error.context} in line {mark.line + 1}, column {mark.column + 1}"


def _user(doc: _UserDoc, folder: Path, origin: str) -> User:
    """Return the credentials of a user."""
    if doc.username or doc.auth_provider is not None:
        which = "passwords" if doc.username else "auth-provider"
        raise NoAccess(f"{origin} uses {which}, which Kubernetes no longer supports; use a token or `exec`")
    certificate = _data(doc.client_certificate_data, doc.client_certificate, folder, origin)
    key = _data(doc.client_key_data, doc.client_key, folder, origin)
    if (certificate is None) != (key is None):
        raise NoAccess(f"{origin} has only one of client-certificate and client-key; write both")
    program = doc.exec
    if program is not None and program.api_version not in EXEC_VERSIONS:
        raise NoAccess(
            f"{origin} runs a program of {program.api_version}; supported are {' and '.join(EXEC_VERSIONS)}"
        )
    if program is not None and program.interactive_mode == "Always":
        raise NoAccess(f"{origin} runs {program.command}, which needs a terminal; a server has none")
    token: str | Path | None = doc.token or None
    if doc.token_file:
        token = folder / doc.token_file
    return User(token, certificate, key, program)


def _data(data: str, path: str, folder: Path, origin: str) -> bytes | Path | None:
    """Return data from the kubeconfig itself, or the path of the file that it names."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            raise NoAccess(f"{origin} has data that is not base64") from None
    return folder / path if path else None


def _content(what: bytes | Path, origin: str) -> bytes:
    if isinstance(what, bytes):
        return what
    try:
        return what.read_bytes()
    except OSError as error:
        raise NoAccess(f"{origin} names {what}, which cannot be read: {error.strerror}") from None


def _text(what: bytes | Path, origin: str) -> str:
    """Return PEM certificates without the comments around them, which may not be ASCII."""
    return _content(what, origin).decode("ascii", errors="ignore")


def _from_pod(environ: Mapping[str, str], folder: Path) -> Access:
    """Return how a pod connects to its own cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca, namespace = folder / "token", folder / "ca.crt", folder / "namespace"
    if not host or not token.exists():
        raise NoAccess("the server does not run in a pod with a service account; leave `in_cluster` out")
    origin = "the service account of this pod"
    return Access(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        User(token=token),
        _text(ca, origin) if ca.exists() else None,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        origin=origin,
    )
