"""Finds the keys that are for us among those that people type into a terminal: Ctrl-] d detaches."""

from typing import Final

ESCAPE: Final = 0x1D
"""Ctrl-]."""
DETACH: Final = frozenset(b"dD")
TOLD: Final = "Ctrl-] d"


class Keys:
    """What was typed. A Ctrl-] waits for the next key: `d` detaches, another Ctrl-] sends one, and any other key both."""

    def __init__(self) -> None:
        self._escaped = False
        self.detached = False
        """Whether somebody wants to detach; what follows is ignored."""

    def feed(self, typed: bytes) -> bytes:
        """Return what to send."""
        sent = bytearray()
        for key in typed:
            if self.detached:
                break
            if not self._escaped:
                if key == ESCAPE:
                    self._escaped = True
                else:
                    sent.append(key)
                continue
            self._escaped = False
            if key in DETACH:
                self.detached = True
            elif key == ESCAPE:
                sent.append(ESCAPE)
            else:
                sent += bytes((ESCAPE, key))
        return bytes(sent)
