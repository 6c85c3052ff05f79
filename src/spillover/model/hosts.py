"""Addresses that are of the machine itself."""

from ipaddress import ip_address


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT can be reached by nobody else; a name, but for localhost, may lead anywhere."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
