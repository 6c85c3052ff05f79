"""Serves version 1 of the HTTP/JSON API: decodes, calls a command, encodes, and nothing else."""

from spillover.api.http.app import build_app
from spillover.api.http.serving import serving

__all__ = ["build_app", "serving"]
