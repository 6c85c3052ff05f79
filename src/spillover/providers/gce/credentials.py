"""Access tokens for the API of Google Cloud, from the sources that Google's own libraries use.

A key file of a service account signs a request for a token; a login of a person has a refresh token; a machine of
Google Cloud asks its metadata service. `gcloud` prints a token if it is asked to.
"""

import asyncio
import base64
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import Struct

from spillover.providers.gce.kind import PROJECTS, GceForm
from spillover.providers.options import beneath
from spillover.providers.rest import CONNECT, UNREADABLE, NoCredentials, Unsent, one_line, said

KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
SCOPE: Final = "https://www.googleapis.com/auth/compute"
GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LASTS: Final = 3600
"""Seconds for which a service account asks."""
EARLY: Final = 120.0
"""Seconds before a token expires to ask for a new one."""
PATIENCE: Final = 30.0
"""Seconds for an answer."""
METADATA: Final = "metadata"
GCLOUD: Final = "gcloud"
_PRODUCT: Final = Path("/sys/class/dmi/id/product_name")


class KeyFile(Struct, frozen=True):
    """A file with credentials, as Google writes it."""

    type: str = ""
    project_id: str = ""
    client_email: str = ""
    private_key: str = ""
    private_key_id: str = ""
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105 - not a secret


class _Granted(Struct, frozen=True):
    """The answer to a request for a token."""

    access_token: str
    expires_in: float = 0.0
    """Seconds."""


class _Denied(Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class AccessTokens:
    """The current access token."""

    def __init__(
        self,
        form: GceForm,
        environ: Mapping[str, str],
        home: Path,
        monotonic: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        self._form = form
        self._environ = environ
        self._home = home
        self._monotonic = monotonic
        self._utc = utc
        self._token = ""
        self._until = 0.0
        """When to renew, seconds on the monotonic clock."""
        self._asking = asyncio.Lock()

    async def current(self) -> str:
        """Return the token; raise NoCredentials, or Unsent if it cannot be had now."""
        async with self._asking:
            if self._monotonic() >= self._until:
                granted = await self._renewed()
                if not (granted.access_token.isascii() and granted.access_token.isprintable()):
                    raise NoCredentials("the access token of Google Cloud has characters that it cannot have")
                self._token = granted.access_token
                self._until = self._monotonic() + max(0.0, granted.expires_in - EARLY)
            return self._token

    def refused(self) -> None:
        """Ask for a new token next time."""
        self._until = 0.0

    async def _renewed(self) -> _Granted:
        source = source_of(self._form, self._environ, self._home)
        if not isinstance(source, Path):
            return await (_printed() if source == GCLOUD else _of_machine(self._environ))
        key = read_key(source)
        if key.type == "service_account":
            return await _asked(
                key.token_uri, {"grant_type": GRANT, "assertion": signed(key, self._utc(), source)}
            )
        return await _asked(
            key.token_uri,
            {
                "grant_type": "refresh_token",
                "client_id": key.client_id,
                "client_secret": key.client_secret,
                "refresh_token": key.refresh_token,
            },
        )


def missing(form: GceForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
    """Return which credentials are missing, and the project if nothing names it."""
    try:
        source = source_of(form, environ, home)
        if isinstance(source, Path):
            read_key(source)
        elif source == GCLOUD and shutil.which(GCLOUD) is None:
            return ["there is no program gcloud; install it, or name a key file in `credentials`"]
        project_of(form, environ, home)
    except NoCredentials as error:
        return [str(error)]
    return ()


def source_of(form: GceForm, environ: Mapping[str, str], home: Path) -> Path | str:
    """Return the file with credentials, METADATA or GCLOUD; raise NoCredentials."""
    if form.credentials in {METADATA, GCLOUD}:
        return form.credentials
    if named := form.credentials or environ.get(KEY_FILE, ""):
        return beneath(home, named)
    settings = (
        Path(environ["CLOUDSDK_CONFIG"]) if environ.get("CLOUDSDK_CONFIG") else home / ".config" / "gcloud"
    )
    if (login := settings / "application_default_credentials.json").exists():
        return login
    if "GCE_METADATA_HOST" in environ or _is_google(_PRODUCT):
        return METADATA
    raise NoCredentials(
        f"Google Cloud needs credentials: name a key file in `credentials` or {KEY_FILE}, write "
        f"`credentials: gcloud`, or run `gcloud auth application-default login` (makes {login})"
    )


def project_of(form: GceForm, environ: Mapping[str, str], home: Path) -> str:
    """Return the id of the project; raise NoCredentials."""
    if project := form.project or next((environ[each] for each in PROJECTS if environ.get(each)), ""):
        return project
    source = source_of(form, environ, home)
    if isinstance(source, Path) and (project := read_key(source).project_id):
        return project
    raise NoCredentials(f"the project of Google Cloud is not known; set `project` or {PROJECTS[0]}")


def read_key(path: Path) -> KeyFile:
    """Read a file with credentials; raise NoCredentials."""
    try:
        key = msgspec.json.decode(path.read_bytes(), type=KeyFile)
    except OSError as error:
        raise NoCredentials(
            f"cannot read the credentials of Google Cloud from {path}: {error.strerror}"
        ) from None
    except UNREADABLE as error:
        raise NoCredentials(one_line(f"{path} has no credentials of Google Cloud: {error}")) from None
    if key.type not in {"service_account", "authorized_user"}:
        raise NoCredentials(
            one_line(
                f"{path} has credentials of type {key.type!r}; use the key of a service account, or `credentials: gcloud`"
            )
        )
    return key


def signed(key: KeyFile, now: float, origin: Path) -> str:
    """Return a request for a token that is signed with the key of a service account."""
    try:
        private = load_pem_private_key(key.private_key.encode(), None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, RSAPrivateKey):
        raise NoCredentials(f"{origin} has no usable private key; create a new key of the service account")
    head = {"alg": "RS256", "typ": "JWT", "kid": key.private_key_id}
    claims = {
        "iss": key.client_email,
        "scope": SCOPE,
        "aud": key.token_uri,
        "iat": int(now),
        "exp": int(now) + LASTS,
    }
    text = f"{_encoded(head)}.{_encoded(claims)}"
    signature = private.sign(text.encode(), PKCS1v15(), hashes.SHA256())
    return f"{text}.{_base64(signature)}"


async def _asked(url: str, form: Mapping[str, str]) -> _Granted:
    """Ask Google for a token."""
    return await _granted("POST", url, data=form)


async def _of_machine(environ: Mapping[str, str]) -> _Granted:
    """Ask the metadata service for the token of this machine."""
    host = environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    return await _granted("GET", url, headers={"Metadata-Flavor": "Google"})


async def _granted(method: str, url: str, **request: Any) -> _Granted:
    try:
        patience = httpx.Timeout(PATIENCE, connect=CONNECT)
        async with httpx.AsyncClient(timeout=patience, verify=url.startswith("https:")) as client:
            answer = await client.request(method, url, **request)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unsent(one_line(f"cannot get an access token from {url}: {said(error)}")) from None
    if answer.status_code >= 500 or answer.status_code == 429:
        raise Unsent(f"{url} has no access token for now (status {answer.status_code})")
    try:
        if answer.is_success:
            return msgspec.json.decode(answer.content, type=_Granted)
        denied = msgspec.json.decode(answer.content, type=_Denied)
    except UNREADABLE:
        denied = _Denied(f"status {answer.status_code}")
    why = f"{denied.error}: {denied.error_description}" if denied.error_description else denied.error
    raise NoCredentials(one_line(f"Google refuses an access token: {why}"))


async def _printed() -> _Granted:
    """Return the token that gcloud prints. It does not say how long it lasts."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(GCLOUD, "auth", "print-access-token", "--quiet"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise NoCredentials(f"cannot run gcloud: {error.strerror}") from None
    try:
        async with asyncio.timeout(PATIENCE):
            out, complaint = await process.communicate()
    except TimeoutError:
        raise Unsent(f"gcloud does not print a token within {PATIENCE:.0f}s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 or not out.strip():
        words = complaint.decode(errors="replace").strip().partition("\n")[0]
        raise NoCredentials(one_line(f"gcloud printed no token: {words}"))
    return _Granted(out.decode(errors="replace").strip(), EARLY + 300)


def _is_google(product: Path) -> bool:
    """Return whether this machine is one of Google Cloud."""
    try:
        return "Google" in product.read_text(errors="replace")
    except OSError:
        return False


def _encoded(value: Mapping[str, object]) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
