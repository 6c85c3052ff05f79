"""Where credentials and the region are looked for, without contacting anybody."""

from collections.abc import Mapping
from configparser import ConfigParser, Error
from pathlib import Path
from typing import Final

from spillover.forms.problems import shown
from spillover.providers.options import beneath

KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_ROLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables by which a container or pod names its role."""
_VENDOR: Final = Path("/sys/devices/virtual/dmi/id/sys_vendor")


def files(environ: Mapping[str, str], home: Path) -> tuple[Path, Path]:
    """Return the files with settings and with credentials, which may not exist."""
    named = [environ.get(name, "") for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")]
    config, credentials = [
        beneath(home, name or f"~/.aws/{default}")
        for name, default in zip(named, ("config", "credentials"), strict=True)
    ]
    return config, credentials


def region_of(region: str | None, environ: Mapping[str, str]) -> str:
    """Return the region; empty if there is none."""
    return region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""


def profile_of(profile: str | None, environ: Mapping[str, str]) -> str:
    """Return the named profile; empty if there is none."""
    return profile or environ.get("AWS_PROFILE") or ""


def lacking(profile: str | None, environ: Mapping[str, str], home: Path) -> str:
    """Return which credentials are missing and where they are looked for; empty if there may be some."""
    config, credentials = files(environ, home)
    named = profile_of(profile, environ)
    if profile is None:  # a profile that is named in the options wins over variables
        given = [name for name in KEYS if environ.get(name)]
        if len(given) == 1:
            (other,) = [name for name in KEYS if name not in given]
            return f"{given[0]} is set and {other} is not; set both, or none of them"
        if given:
            return ""
    known = _profiles(config, credentials)
    if isinstance(known, str):
        return known
    if named:
        there = f"there are {', '.join(sorted(known))}" if known else "there are none"
        return (
            ""
            if named in known
            else f"there is no profile {shown(named)} in {credentials} or {config}; {there}"
        )
    if "default" in known or any(environ.get(name) for name in _ROLES) or _on_ec2(environ):
        return ""
    return (
        f"there are no credentials for AWS: {' and '.join(KEYS)} are not set, {credentials} and {config} have no "
        "profile, and this machine has no role; set one of these, or `profile`"
    )


def _profiles(config: Path, credentials: Path) -> set[str] | str:
    """Return the names of profiles; a line if a file cannot be read."""
    known = set[str]()
    for path in (config, credentials):
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(path.read_text())
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, Error) as error:
            return f"{path} cannot be read: {' '.join(str(error).split())[:200]}"
        for name in parser.sections():
            kind, _, rest = name.partition(" ")
            if path == credentials or name == "default":
                known.add(name)
            elif kind == "profile":
                known.add(rest.strip().strip("\"'"))
    return known


def _on_ec2(environ: Mapping[str, str]) -> bool:
    """Return whether this machine may have a role, which only its metadata service knows."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    try:
        return "amazon" in _VENDOR.read_text().lower()
    except OSError:
        return False
