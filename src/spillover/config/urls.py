"""Checks URLs that the server sends to, which may carry secrets: for webhooks and for receivers of traces."""

from urllib.parse import urlsplit

from spillover.forms.problems import shown
from spillover.model.hosts import is_loopback


def wrong_url(text: str, like: str, *, instead: str, private: str = "") -> str:
    """Return why the server cannot safely send to a URL; empty if it can.

    `like` is an example, `instead` says where a token belongs, and `private` what must not cross a network in the
    clear; empty if all of it may.
    """
    try:
        url = urlsplit(text)
        host, user, password, port = url.hostname or "", url.username, url.password, url.port
    except ValueError:
        return _no_url(text, like)
    if user is not None or password is not None:
        return f"has a user or a password, which would show in logs; put a token into {instead} instead"
    plain = text.isascii() and text.isprintable() and " " not in text
    if not plain or url.scheme not in {"http", "https"} or not host or port == 0:
        return _no_url(text, like)
    if private and url.scheme == "http" and not is_loopback(f"{host}:0"):
        return f"{shown(text)} would send {private} in the clear; write https, or an address of this machine"
    return ""


def _no_url(text: str, like: str) -> str:
    """Say that a text is no URL, without what may be a password in it."""
    return f"{'this' if '@' in text else shown(text)} is not a URL; write {like}"
