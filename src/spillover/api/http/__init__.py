"""HTTP/JSON, version 1: decode, call a command, encode, and nothing else."""

from spillover.api.http.app import build_app
from spillover.api.http.serving import serving

__all__ = ["build_app", "serving"]
