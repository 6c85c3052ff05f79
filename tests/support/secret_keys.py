"""Keys of secrets for tests."""

from collections.abc import Sequence

from spillover.control.secrets.sealing import KeyProblem, SecretKey, draw_key, key_from


class HandKeys:
    """Keys that a test sets; it begins with one."""

    def __init__(self) -> None:
        self.there = [key_from(draw_key())]

    def keys(self, *, create: bool = False) -> Sequence[SecretKey]:
        """See KeySource."""
        del create
        if not self.there:
            raise KeyProblem("there is no key file secrets.key; restore it")
        return self.there
