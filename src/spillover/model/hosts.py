"""Recognises loopback addresses."""

from ipaddress import ip_address


def is_loopback(address: str) -> bool:
    """Return whether HOST:PORT is reachable only from this machine; of names, only localhost surely is."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
