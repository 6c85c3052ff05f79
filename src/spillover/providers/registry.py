"""Loads the built-in providers, and those of installed packages by their entry points.

A provider that cannot be loaded is left out and reported in one line. The others still work.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Final

from spillover.forms.problems import shown
from spillover.model.backoff import reason_of
from spillover.ports.plugins import brought, installed, load_plugin
from spillover.ports.provider import ProviderKind, pip

GROUP: Final = "spillover.providers"
BUILT_IN: Final = {
    "command": "spillover.providers.command.provider:CommandKind",
    "process": "spillover.providers.process.provider:ProcessKind",
    "podman": "spillover.providers.podman.provider:PodmanKind",
    "aws": "spillover.providers.aws.kind:AwsKind",
    "gce": "spillover.providers.gce.kind:GceKind",
    "hetzner": "spillover.providers.hetzner.kind:HetznerKind",
    "kubernetes": "spillover.providers.kubernetes.kind:KubernetesPodsKind",
    "clusterapi": "spillover.providers.clusterapi.kind:ClusterApiKind",
    "fluxburst": "spillover.providers.fluxburst.provider:FluxburstKind",
}
"""As in pyproject.toml. Listed here too, so that they work in a source tree, and no package can replace them."""
_PARTS: Final = ("name", "form", "notices", "requires", "open", "check", "missing")


class Providers(Mapping[str, ProviderKind]):
    """The usable providers by name, and why others are not usable."""

    def __init__(self, providers: dict[str, ProviderKind], unusable: dict[str, str]) -> None:
        self._providers = providers
        self.unusable = unusable
        """One line by name for each provider that cannot be used."""

    def __getitem__(self, name: str) -> ProviderKind:
        return self._providers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)

    def why_not(self, name: str) -> str:
        """Return in one line why there is no provider of this name, which there are, and what to install."""
        return self.unusable.get(name) or f"{shown(name)} is not a provider; {self.there}"

    @property
    def there(self) -> str:
        """Which providers there are, and what to install, in one line."""
        names = ", ".join([_listed(each) for each in self.values()])
        return f"there are {names or 'none'}; a package can bring others (entry point {GROUP})"


def load_providers() -> Providers:
    """Load all providers: built-in ones first, then those of installed packages by name."""
    providers: dict[str, ProviderKind] = {}
    unusable: dict[str, str] = {}
    ours = [EntryPoint(name, where, GROUP) for name, where in BUILT_IN.items()]
    others = [point for point in installed(GROUP) if BUILT_IN.get(point.name) != point.value]
    for point in (*ours, *others):
        try:
            if point.name in providers:
                raise ValueError("another provider has that name")  # noqa: TRY301 - reported like any other problem
            providers[point.name] = load_plugin(point, _PARTS, ProviderKind)
        except Exception as error:  # noqa: BLE001 - foreign code must not keep the server from using other providers
            unusable.setdefault(
                point.name, f"{brought('provider', point)} cannot be used: {reason_of(error)}"
            )
    return Providers(providers, {name: why for name, why in unusable.items() if name not in providers})


def _listed(kind: ProviderKind) -> str:
    """Return a provider for a list of all, with what it lacks."""
    lacks = [package for module, package in kind.requires.items() if find_spec(module) is None]
    return f"{kind.name} ({pip(lacks[0])})" if lacks else kind.name
