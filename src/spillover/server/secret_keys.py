"""The file with the keys that encrypt secrets. It is never in the database.

Each line is a key, in base64. The first one encrypts; the others only decrypt, until `spill secret rekey` was run.
"""

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from spillover.control.secrets.sealing import KeyProblem, SecretKey, draw_key, key_from

KEY_FILE: Final = "secrets.key"
"""Name of the file in the data folder, if no other is configured."""
CREDENTIAL: Final = "spillover-secrets-key"
"""Name of the credential that systemd may pass (`LoadCredential=`)."""
_MOST: Final = 64 << 10
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

log = structlog.get_logger()


class KeyFile:
    """The keys of a server in a file."""

    def __init__(self, path: Path, *, own: bool) -> None:
        self.path = path
        self._own = own
        """Whether the server may create it."""

    def keys(self, *, create: bool = False) -> Sequence[SecretKey]:
        """See KeySource."""
        try:
            return self._read()
        except FileNotFoundError:
            if not (create and self._own):
                raise KeyProblem(f"there is no key file {self.path}; {self._advice()}") from None
        except OSError as error:
            raise KeyProblem(f"cannot read the key file {self.path}: {error.strerror or error}") from None
        try:
            self._create()
            return self._read()
        except OSError as error:
            raise KeyProblem(f"cannot create the key file {self.path}: {error.strerror or error}") from None

    def _advice(self) -> str:
        if self._own:
            return "restore it, or remove all secrets and set them again"
        return "create it with `openssl rand -base64 32`, mode 0600"

    def _read(self) -> Sequence[SecretKey]:
        """Read all keys. Raises OSError or KeyProblem."""
        with self.path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & _OTHERS:
                log.warning("other users of this machine can read the key file", file=str(self.path))
            lines = file.read(_MOST).split()
        keys: list[SecretKey] = []
        for at, line in enumerate(lines, 1):
            try:
                keys.append(key_from(line.decode("ascii")))
            except ValueError:
                told = f"key {at} in {self.path} is not a key: 32 bytes in base64, as from `openssl rand -base64 32`"
                raise KeyProblem(told) from None
        if not keys:
            raise KeyProblem(f"the key file {self.path} is empty; {self._advice()}")
        return keys

    def _create(self) -> None:
        """Create the file with a new key, complete from the first moment. Raises OSError."""
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(draw_key() + "\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another server was faster; use its key
                os.link(fresh, self.path)
        finally:
            fresh.unlink(missing_ok=True)


def key_file_of(configured: str | None, data: Path, environ: Mapping[str, str] = os.environ) -> KeyFile:
    """Return the key file: the configured one, else the credential of systemd, else one in the data folder."""
    if configured is not None:
        return KeyFile(Path(configured), own=False)
    credential = Path(environ.get("CREDENTIALS_DIRECTORY", "")) / CREDENTIAL
    if "CREDENTIALS_DIRECTORY" in environ and credential.exists():
        return KeyFile(credential, own=False)
    return KeyFile(data / KEY_FILE, own=True)
