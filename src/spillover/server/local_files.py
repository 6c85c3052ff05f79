"""Says what is wrong with the files that a configuration names, with the line that names each."""

import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

from spillover.config.config import Config, Tls
from spillover.control.secrets.sealing import KeyProblem
from spillover.forms.documents import read_documents
from spillover.forms.problems import FormProblem, line_of
from spillover.server.secret_keys import key_file_of
from spillover.server.tls import BadCertificate, load_identity


def refused_files(config: Config, source: str) -> list[FormProblem]:
    """Return a problem for each file without which a server does not start."""
    return _located(source, [*_tls(config.tls), *_telemetry(config), *_oidc(config)])


def unusable_files(config: Config, source: str) -> list[FormProblem]:
    """Return a problem for each file or folder that a server cannot use, also if it would start without it."""
    found = [*_tls(config.tls), *_telemetry(config), *_oidc(config), *_secrets(config), *_data(config)]
    return _located(source, found)


def _located(source: str, found: list[tuple[str, str]]) -> list[FormProblem]:
    """Return problems with the lines of their settings."""
    if not found:
        return []
    lines = read_documents(Path(source).read_bytes(), source)[0].lines if Path(source).is_file() else {}
    located = [
        FormProblem(source, line_of(tuple(setting.split(".")), lines), setting, told)
        for setting, told in found
    ]
    return sorted(located, key=lambda problem: problem.line or 0)


def _tls(tls: Tls | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the certificate of the server."""
    if tls is None:
        return
    whole = True
    for name, path in (("cert", tls.cert), ("key", tls.key), ("ca", tls.ca)):
        if path is not None and (told := _unreadable(path)):
            hint = "; `spill cert init` makes one" if not Path(path).exists() else ""
            yield f"tls.{name}", told + hint
            whole = False
    if whole:
        try:
            load_identity(tls, time.time())
        except BadCertificate as error:
            yield error.setting, error.message


def _telemetry(config: Config) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the authority of the receiver of traces."""
    ca = config.telemetry.ca
    if ca is None:
        return
    if told := _unreadable(ca):
        yield "telemetry.ca", told
        return
    try:
        ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        yield "telemetry.ca", f"{ca} has no certificate of an authority, as PEM"


def _oidc(config: Config) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the files for signing in at a provider."""
    oidc = config.access.oidc
    for name in ("client_secret_file", "ca") if oidc is not None else ():
        path = getattr(oidc, name)
        if path is not None and (told := _unreadable(path)):
            yield f"access.oidc.{name}", told
        elif path is not None and name == "ca":
            try:
                ssl.create_default_context(cafile=path)
            except ssl.SSLError:
                yield "access.oidc.ca", f"{path} has no certificate of an authority, as PEM"


def _secrets(config: Config) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the key file that is configured; without one, the server makes its own."""
    if config.secrets_key is not None:
        try:
            key_file_of(config.secrets_key, Path(config.data)).keys()
        except KeyProblem as error:
            yield "secrets.key_file", str(error)


def _data(config: Config) -> Iterator[tuple[str, str]]:
    """Yield why the data folder cannot be used, or created."""
    folder = Path(config.data)
    if folder.is_dir():
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield "data", f"{folder} cannot be written by this user"
        return
    above = folder.absolute()
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        yield "data", f"{above} is not a folder"
    elif not os.access(above, os.W_OK | os.X_OK):
        yield "data", f"{folder} cannot be created, because this user cannot write {above}"


def _unreadable(path: str) -> str:
    """Return why a file cannot be read; empty if it can."""
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""
