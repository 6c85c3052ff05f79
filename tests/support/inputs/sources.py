"""All sources of input, by name."""

from typing import Final

from tests.support.inputs.agents import AGENTS
from tests.support.inputs.clocks import CLOCKS
from tests.support.inputs.clusters import CLUSTERS
from tests.support.inputs.files import FILES_OF_DATA
from tests.support.inputs.plugins import PLUGINS
from tests.support.inputs.requests import REQUESTS
from tests.support.inputs.source import Source

SOURCES: Final[dict[str, Source]] = {
    source.name: source for source in (AGENTS, CLUSTERS, REQUESTS, FILES_OF_DATA, PLUGINS, CLOCKS)
}
