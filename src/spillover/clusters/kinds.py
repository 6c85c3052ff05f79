"""Loads the built-in cluster kinds, and those of installed packages by their entry points.

A kind that cannot be loaded is left out and reported in one line. The other kinds still work.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint
from keyword import iskeyword
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct, structs

from spillover.model.backoff import reason_of
from spillover.ports.kinds import ClusterKind
from spillover.ports.plugins import brought, installed, load_plugin
from spillover.wire.clusterfile import ClusterDoc, LocalAgentsDoc
from spillover.wire.configfile import ConfigDoc

Doc = TypeVar("Doc", bound=Struct)
GROUP: Final = "spillover.clusters"
BUILT_IN: Final = {
    "agents": "spillover.clusters.agents.kind:AgentsKind",
    "kubernetes": "spillover.clusters.kubernetes.kind:KubernetesKind",
}
"""As in pyproject.toml. Listed here too, so that they work in a source tree, and no package can replace them."""
_TAKEN: Final = frozenset((*ClusterDoc.__struct_fields__, *LocalAgentsDoc.__struct_fields__, *BUILT_IN))
"""Keys of a cluster that no other kind may use as its section."""
_PARTS: Final = ("name", "form", "section", "capabilities", "open", "check", "missing", "manner")


class Kinds(Mapping[str, ClusterKind]):
    """The usable kinds by name, and why others are not usable."""

    def __init__(self, kinds: dict[str, ClusterKind], unusable: dict[str, str]) -> None:
        self._kinds = kinds
        self.unusable = unusable
        """One line by name for each kind that cannot be used."""

    def __getitem__(self, name: str) -> ClusterKind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def sections(self) -> dict[str, str]:
        """The key of a cluster that holds the settings of each kind, by the name of the kind."""
        return {name: section_of(kind) for name, kind in self.items() if kind.section is not None}

    @property
    def cluster_doc(self) -> type[ClusterDoc]:
        """The form of a cluster in spill.yaml, with the settings of all kinds."""
        return self._docs()[0]

    @property
    def config_doc(self) -> type[ConfigDoc]:
        """The form of spill.yaml, with the settings of all kinds."""
        return self._docs()[1]

    def _docs(self) -> tuple[type[ClusterDoc], type[ConfigDoc]]:
        forms = tuple([(each.name, each.form, each.section) for each in self.values()])
        return _docs(forms, tuple(self.unusable))


def load_kinds() -> Kinds:
    """Load all kinds: built-in ones first, then those of installed packages by name."""
    kinds: dict[str, ClusterKind] = {}
    unusable: dict[str, str] = {}
    for name, where in BUILT_IN.items():
        module, _, made = where.partition(":")
        kinds[name] = getattr(import_module(module), made)()
    for point in installed(GROUP):
        if BUILT_IN.get(point.name) == point.value:
            continue
        try:
            if point.name in kinds:
                raise ValueError("another kind has that name")  # noqa: TRY301 - reported like any other problem
            kind = _made(point)
            if section_of(kind) in map(section_of, kinds.values()):
                raise ValueError(f"another kind has the section {section_of(kind)!r}")  # noqa: TRY301 - as above
            kinds[point.name] = kind
        except Exception as error:  # noqa: BLE001 - foreign code must not keep the server from using its other clusters
            unusable.setdefault(
                point.name, f"{brought('cluster kind', point)} cannot be used: {reason_of(error)}"
            )
    return Kinds(kinds, {name: why for name, why in unusable.items() if name not in kinds})


def section_of(kind: ClusterKind) -> str:
    """Return the key of a cluster that holds the settings of a kind."""
    return kind.section or kind.name


def _made(point: EntryPoint) -> ClusterKind:
    """Load the kind of an installed package; raise whatever is wrong with it."""
    kind: ClusterKind = load_plugin(point, _PARTS, ClusterKind)
    section = section_of(kind)
    if kind.section is None or not _is_word(section) or section in _TAKEN:
        raise ValueError(f"its section {section!r} must be a new word of letters, digits and _")
    return kind


def _is_word(name: str) -> bool:
    """Return whether a name can be a key of spill.yaml and a field of a Struct."""
    return name.isidentifier() and name.isascii() and not iskeyword(name) and not name.startswith("_")


@lru_cache(maxsize=16)
def _docs(
    forms: tuple[tuple[str, type[Struct], str | None], ...], unusable: tuple[str, ...]
) -> tuple[type[ClusterDoc], type[ConfigDoc]]:
    """Build the forms of a cluster and of spill.yaml with the settings of these kinds."""
    names = tuple([name for name, _, _ in forms] + list(unusable))
    more: list[tuple[Any, ...]] = []
    for name, form, section in forms:
        if section is None:
            more += _fields(form)
        else:
            told = Meta(description=f"Settings of a cluster of kind {name}.")
            more.append((section or name, Annotated[form | None, told], None))
    more += [
        (name, dict[str, Any] | None, None) for name in unusable if _is_word(name) and name not in _TAKEN
    ]
    kind = ("kind", Annotated[Literal[names], Meta(description="Kind of cluster.")], "agents")
    cluster = _doc(ClusterDoc, {"kind": kind}, more, "A group of machines that run jobs.")
    clusters = Annotated[
        Annotated[list[cluster], Meta(max_length=1000)] | None,  # type: ignore[valid-type]
        Meta(description="Clusters, in the order in which they are tried; default: this machine."),
    ]
    config = _doc(ConfigDoc, {"clusters": ("clusters", clusters, None)}, (), ConfigDoc.__doc__ or "")
    return cluster, config


def _doc(
    base: type[Doc],
    others: Mapping[str, tuple[Any, ...]],
    more: Iterable[tuple[Any, ...]],
    about: str,
) -> type[Doc]:
    """Derive a form with some fields replaced in place and others appended."""
    fields = [others[name] if name in others else _field(base, name) for name in base.__struct_fields__]
    made = msgspec.defstruct(
        base.__name__,
        [*fields, *more],
        bases=(base,),
        namespace={"__doc__": about},
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )
    return cast("type[Doc]", made)


def _fields(form: type[Struct]) -> list[tuple[Any, ...]]:
    """Return all fields of a form as defstruct takes them."""
    return [_field(form, name) for name in form.__struct_fields__]


def _field(form: type[Struct], name: str) -> tuple[Any, ...]:
    """Return the name, annotated type and default (if any) of a field, as defstruct takes them."""
    (field,) = [each for each in structs.fields(form) if each.name == name]
    default: tuple[Any, ...] = () if field.default is msgspec.NODEFAULT else (field.default,)
    if field.default_factory is not msgspec.NODEFAULT:
        default = (msgspec.field(default_factory=field.default_factory),)
    return (name, form.__annotations__[name], *default)
