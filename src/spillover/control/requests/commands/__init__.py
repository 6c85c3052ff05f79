"""Carries out requests of users for the HTTP API. Every answer passes the gate.

Each module has the commands about one subject; `base.py` has what they share.
"""

from spillover.control.requests.commands.access import AccessCommands
from spillover.control.requests.commands.base import Parts
from spillover.control.requests.commands.clusters import ClusterCommands
from spillover.control.requests.commands.costs import CostCommands
from spillover.control.requests.commands.history import HistoryCommands
from spillover.control.requests.commands.jobs import JobCommands
from spillover.control.requests.commands.policies import PolicyCommands
from spillover.control.requests.commands.server import ServerCommands

__all__ = ["LiveCommands", "Parts"]


class LiveCommands(
    JobCommands,
    HistoryCommands,
    ClusterCommands,
    ServerCommands,
    CostCommands,
    PolicyCommands,
    AccessCommands,
):
    """Implements `spillover.ports.commands`."""
