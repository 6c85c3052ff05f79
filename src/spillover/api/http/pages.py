"""Serves the web page: its shell at each of its addresses, and its files under /assets/.

Neither needs a token, because they hold no data: the page gets all data from /v1, like any other client. The files are
read once, when the first application is built.
"""

import gzip
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from msgspec import Struct

from spillover.api.http.guard import Headers
from spillover.api.http.replies import Reply

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from other hosts, and no code or style inside of HTML, so that no text of a user can become code."""
SECURE: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""On every answer that is a part of the page."""
ADDRESSES: Final = re.compile(r"/(jobs(/[^/]+)?|policy|clusters|reservations|costs|submit|sign-in|account)?")
"""Paths of the page. Its scripts show what belongs to each."""
ASSETS: Final = "/assets/"
MEDIA: Final[Mapping[str, bytes]] = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "png": b"image/png",
    "svg": b"image/svg+xml",
}
"""By the end of the name of a file. Others are not served."""
_HTML: Final = MEDIA["html"]
_FOR_READERS: Final = re.compile(rb"^ *(?:(?://|/\*\*|\* |\*/).*\n)?", re.MULTILINE)
"""Indentation, and comments that have a line of their own: scripts are sent without them. No text in a script spans lines."""
_ZIPPED: Final = frozenset({"css", "html", "js", "svg"})
_SHELL: Final = "index.html"


class Asset(Struct, frozen=True):
    """One file of the page."""

    body: bytes
    zipped: bytes | None
    """The same for those who accept gzip; None if that is not smaller."""
    media: bytes
    tag: bytes
    """Changes with the content."""


class Pages:
    """The files of the page."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._assets = {
            name: _asset(name, body) for name, body in contents.items() if name.rpartition(".")[2] in MEDIA
        }
        self._shell = self._assets.pop(_SHELL)

    def answer(self, method: str, path: str, headers: Headers) -> Reply | None:
        """Return the answer to a request for a part of the page; None if it asks for something else."""
        if method not in {"GET", "HEAD"}:
            return None
        if path.startswith(ASSETS):
            asset = self._assets.get(path.removeprefix(ASSETS))
            return None if asset is None else _sent(asset, headers)
        return _sent(self._shell, headers) if ADDRESSES.fullmatch(path) else None

    def starting(self, method: str, path: str, headers: Headers, waits_for: str) -> Reply | None:
        """Return the same for a server that cannot show data yet: its addresses then say what it waits for."""
        if path.startswith(ASSETS):
            return self.answer(method, path, headers)
        if method not in {"GET", "HEAD"} or not ADDRESSES.fullmatch(path):
            return None
        told = [
            "The server is starting.",
            f"It waits for this: {waits_for}",
            "This page tries again by itself.",
        ]
        again = ((b"refresh", b"1"), (b"retry-after", b"1"))
        return message("Spillover is starting", told, HTTPStatus.SERVICE_UNAVAILABLE, again)


@cache
def read_pages() -> Pages:
    """Read the files of the page."""
    folder = files("spillover.api.http") / "page"
    return Pages({each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()})


def message(
    title: str,
    paragraphs: list[str],
    status: int = HTTPStatus.OK,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    link: tuple[str, str] | None = None,
) -> Reply:
    """Return a page that only says something, with at most one link: its address and its text."""
    told = "".join(f"<p>{escape(each)}</p>\n" for each in paragraphs)
    linked = "" if link is None else f'<p><a href="{escape(link[0])}">{escape(link[1])}</a></p>\n'
    html = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f'<link rel="stylesheet" href="{ASSETS}message.css">\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{told}{linked}</main>\n</body>\n</html>\n"
    )
    return Reply(html.encode(), _HTML, status, (*SECURE, (b"cache-control", b"no-store"), *headers))


def _asset(name: str, body: bytes) -> Asset:
    """Prepare a file for sending."""
    kind = name.rpartition(".")[2]
    if kind == "js":
        body = _FOR_READERS.sub(b"", body)
    zipped = gzip.compress(body, 9, mtime=0) if kind in _ZIPPED else body
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    return Asset(body, zipped if len(zipped) < len(body) else None, MEDIA[kind], tag.encode())


def _sent(asset: Asset, headers: Headers) -> Reply:
    """Return a file, or that the caller has it already."""
    zipped = asset.zipped if _takes_gzip(headers) else None
    # The same content in another encoding needs another tag.
    tag = asset.tag if zipped is None else asset.tag[:-1] + b'-gzip"'
    fixed = (*SECURE, (b"cache-control", b"no-cache"), (b"vary", b"accept-encoding"), (b"etag", tag))
    known = {each.strip().removeprefix(b"W/") for each in headers.get(b"if-none-match", b"").split(b",")}
    if tag in known:
        return Reply(b"", asset.media, HTTPStatus.NOT_MODIFIED, fixed)
    if zipped is None:
        return Reply(asset.body, asset.media, HTTPStatus.OK, fixed)
    return Reply(zipped, asset.media, HTTPStatus.OK, (*fixed, (b"content-encoding", b"gzip")))


def _takes_gzip(headers: Headers) -> bool:
    """Return whether a caller accepts gzip."""
    for each in headers.get(b"accept-encoding", b"").lower().split(b","):
        name, _, weight = each.partition(b";")
        if name.strip() == b"gzip":
            return weight.replace(b" ", b"") not in {b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"}
    return False
