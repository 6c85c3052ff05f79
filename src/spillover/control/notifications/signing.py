"""Signs messages to webhooks as https://www.standardwebhooks.com describes, so that receivers can use its libraries.

The signature covers the id, the time and the body. So a receiver can tell that a message is ours, that nobody changed it,
and that it is not an old one that somebody sends again.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
LEAST_SECRET: Final = 16
"""Fewest bytes of a secret; fewer could be guessed."""
_PREFIX: Final = b"whsec_"


class BadSecret(ValueError):
    """A secret that cannot sign; the message says why."""


def headers(secrets: Sequence[bytes], identity: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a message, with one signature for each secret; `at` is in seconds."""
    signed = f"{identity}.{at}.".encode() + body
    made = [b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in secrets]
    return {ID: identity, TIMESTAMP: str(at), SIGNATURE: " ".join(f"v1,{each}" for each in made)}


def secrets_of(text: bytes) -> list[bytes]:
    """Return the secrets of a file, one in each line; raise BadSecret if there are none, or one cannot be used.

    One that begins with `whsec_` is in base64 behind that, as others write them. Any other counts as it is.
    """
    found: list[bytes] = []
    for line in text.split():
        secret = line
        if line.startswith(_PREFIX):
            try:
                secret = b64decode(line.removeprefix(_PREFIX), validate=True)
            except ValueError:
                raise BadSecret("a secret that begins with whsec_ is not base64 behind that") from None
        if len(secret) < LEAST_SECRET:
            raise BadSecret(
                f"a secret is shorter than {LEAST_SECRET} bytes; make one with `openssl rand -base64 32`"
            )
        found.append(secret)
    if not found:
        raise BadSecret("there is no secret; make one with `openssl rand -base64 32`")
    return found
