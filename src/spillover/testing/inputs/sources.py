"""All sources of input from outside, by name."""

from typing import Final

from spillover.testing.inputs.agents import AGENTS
from spillover.testing.inputs.clocks import CLOCKS
from spillover.testing.inputs.clusters import CLUSTERS
from spillover.testing.inputs.files import FILES_OF_DATA
from spillover.testing.inputs.plugins import PLUGINS
from spillover.testing.inputs.requests import REQUESTS
from spillover.testing.inputs.source import Source

SOURCES: Final[dict[str, Source]] = {
    source.name: source for source in (AGENTS, CLUSTERS, REQUESTS, FILES_OF_DATA, PLUGINS, CLOCKS)
}
