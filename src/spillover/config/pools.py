"""Reads the pool of a rented cluster: its provider with options, what it offers, and its limits."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from spillover.config.prices import read_billing
from spillover.deciding.renting.money import first_held
from spillover.forms.checking import check
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import MOST_LOST_AFTER, duration, money, read_cpu, read_memory, read_words
from spillover.forms.words import meant, words_of
from spillover.model.backoff import reason_of
from spillover.model.budget import Per
from spillover.model.cluster import AGENTS, Billing, Role
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.pools import Offer, Pool, PoolBudget, machine_id
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, SECOND, format_duration, format_money
from spillover.ports.kinds import ClusterKind
from spillover.ports.provider import ProviderKind
from spillover.providers.registry import Providers, load_providers
from spillover.wire.clusterfile import BillingDoc, ClusterDoc, OfferDoc, PoolDoc, PriceDoc

AUTO: Final = "auto"
VARIABLE: Final = "SPILL_POOL_"
"""How the names of environment variables with options of providers begin; then CLUSTER_OPTION."""
PROVIDER: Final = ("pool", "provider")
"""Where a cluster names the provider of its pool."""
MISSING: Final = "is missing"
"""What is said of a field that must be there."""
MOST_BOOT: Final = DAY
MOST_NODES: Final = 100_000
_MANY: Final = 10**10 - 1
"""A number of a machine that no pool ever reaches: on a restored backup, they go on from the seconds since 1970."""


def name_providers(found: Findings) -> None:
    """Let the line about a missing provider say which there are.

    No provider is the default: `process` would run jobs on the server's machine, as if it had been rented.
    """
    missing = [at for at, each in enumerate(found.found) if each[0][-2:] == PROVIDER and each[1] == MISSING]
    if missing:
        advice = f"{MISSING}; {load_providers().there}; `process` is for trials: it starts agents on the server's machine"
        for at in missing:
            found.found[at] = found.found[at][0], advice


class PoolReader:
    """Reads pools, and loads providers at most once."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._providers: Callable[[], Providers] = cache(load_providers)
        self.forms: dict[str, Struct] = {}
        """Options of the provider of each cluster that was read, in the provider's form."""

    def read(
        self, doc: ClusterDoc, kind: ClusterKind, billing: Billing, path: Path, found: Findings
    ) -> tuple[Pool | None, Billing]:
        """Read the pool of a cluster of a kind, and how its machines are billed; None if it has none."""
        if doc.pool is None:
            return None, billing
        here: Path = (*path, "pool")
        _check_place(doc, doc.pool, kind, path, found)
        if doc.pool.billing is not None:
            billing = read_billing(doc.pool.billing, (*here, "billing"), found)
        name, provider, form = self._provider(doc, doc.pool, here, found)
        whole = doc.kind != AGENTS
        if provider is not None and form is not None:
            whole = self._makes_clusters(doc, provider, form, (*here, "provider"), found)
        offers, origins = _offers(doc.pool.offers, (*here, "offers"), found, whole=whole)
        if provider is not None and form is not None:
            _check_provider(provider, form, offers, origins, here, found)
        return _pool(doc.pool, name, offers, billing, here, found), billing

    def _provider(
        self, doc: ClusterDoc, pool: PoolDoc, path: Path, found: Findings
    ) -> tuple[str, ProviderKind | None, Struct | None]:
        """Read the provider and its options; return its name, and what could be read."""
        place: Path = (*path, "provider")
        said = {pool.provider: None} if isinstance(pool.provider, str) else pool.provider
        if len(said) != 1:
            found.add(place, "is not one provider; write its name, or {name: {option: value}}")
            return "", None, None
        ((name, options),) = said.items()
        kind = self._providers().get(name)
        if kind is None:
            found.add(place, self._providers().why_not(name))
            return name, None, None
        form = self._form(kind, doc.name, options or {}, (*place, name), found)
        if form is not None:
            self.forms[doc.name] = form
        return name, kind, form

    def _makes_clusters(
        self, doc: ClusterDoc, provider: ProviderKind, form: Struct, place: Path, found: Findings
    ) -> bool:
        """Return whether a provider makes whole clusters, which must fit the kind of the cluster."""
        try:
            whole = provider.makes_clusters(form)
        except Exception as error:  # noqa: BLE001 - the provider may be foreign code
            found.add(place, f"the provider {provider.name} failed to check its options: {reason_of(error)}")
            return doc.kind != AGENTS
        if whole and doc.kind == AGENTS:
            told = f"{provider.name} makes whole clusters with these options, not machines"
            found.add(place, f"{told}; write `kind: kubernetes` for the cluster")
        elif not whole and doc.kind != AGENTS:
            told = f"{provider.name} rents machines with these options, not whole clusters"
            found.add(place, f"{told}; write `kind: {AGENTS}` for the cluster")
        return whole

    def _form(
        self, kind: ProviderKind, cluster: str, options: dict[str, Any], path: Path, found: Findings
    ) -> Struct | None:
        """Read the options of a provider; those of the environment replace those of the file."""
        told = self._told(kind, cluster)
        for variable, (option, value) in told.items():
            wrong = Findings()
            check(kind.form, {option: value}, wrong)
            for _, message in wrong.found:
                found.add(path, f"{variable}: {message}")
            if wrong.found:
                return None
        value = options | dict(told.values())
        try:
            form: Struct = msgspec.convert(value, kind.form)
        except (msgspec.ValidationError, RecursionError):
            check(kind.form, value, found, path)
            return None
        return form

    def _told(self, kind: ProviderKind, cluster: str) -> dict[str, tuple[str, object]]:
        """Return options of a provider that environment variables set, by variable."""
        told: dict[str, tuple[str, object]] = {}
        for option, word in words_of(kind.form, several=True).items():
            name = variable_of(cluster, option)
            if name in self._environ:
                told[name] = option, meant(self._environ[name], word)
        return told


def _check_provider(
    provider: ProviderKind, form: Struct, offers: list[Offer], origins: list[int], path: Path, found: Findings
) -> None:
    """Add what a provider finds wrong with its options and offers."""
    place: Path = (*path, "provider", provider.name)
    try:
        for flaw in provider.check(form, offers):
            match flaw.path:
                case ("offers", int(at), *rest):
                    found.add((*path, "offers", origins[at], *rest), flaw.message)
                case _:
                    found.add((*place, *flaw.path), flaw.message)
    except Exception as error:  # noqa: BLE001 - the provider may be foreign code
        told = f"the provider {provider.name} failed to check its options: {reason_of(error)}"
        found.add(place[:-1], told)


def variable_of(cluster: str, option: str) -> str:
    """Return the environment variable that sets an option of the provider of a cluster."""
    words = f"{cluster}_{option}".upper()
    return VARIABLE + "".join(each if each.isascii() and each.isalnum() else "_" for each in words)


def _check_place(doc: ClusterDoc, pool: PoolDoc, kind: ClusterKind, path: Path, found: Findings) -> None:
    """Add problems of a pool beside other settings of its cluster."""
    place: Path = (*path, "pool")
    if doc.kind != AGENTS and not kind.kubeconfig:
        found.add(place, f"is not possible with kind: {doc.kind}, of which no clusters can be made")
    elif getattr(doc, "local", None):
        found.add((*path, "local"), "is not allowed with `pool`; move these agents to another cluster")
    if Role(doc.role) is not Role.RENTED:
        found.add(place, "is only allowed with role: rented")
    if doc.price != PriceDoc(egress_gb=doc.price.egress_gb):
        told = "has prices that `pool` does not use; write the price of a machine as `hour` of its offer"
        found.add((*path, "price"), told)
    if doc.startup != "0s":
        found.add((*path, "startup"), "is not allowed with `pool`; write `boot` in the pool")
    if pool.billing is not None and doc.billing != BillingDoc():
        found.add((*path, "billing"), "is set in `pool` too; remove one of them")
    if is_name(doc.name) and not is_name(machine_id(doc.name, _MANY)):
        told = f"{shown(doc.name)} is too long: machines are named {shown(machine_id(doc.name, 1))}, and a name has {NAME_RULE}"
        found.add((*path, "name"), told)


def _offers(
    docs: list[OfferDoc], path: Path, found: Findings, *, whole: bool
) -> tuple[list[Offer], list[int]]:
    """Return an offer for each zone of each entry, and for each of them the index of its entry."""
    if not docs:
        told = "is empty; add an offer, such as {type: small, cpu: 4, memory: 16Gi, hour: 0.2}"
        found.add(path, told)
    offers: dict[str, Offer] = {}
    origins: list[int] = []
    for at, doc in enumerate(docs):
        here: Path = (*path, at)
        nodes = _nodes(doc, here, found, whole=whole)
        for offer in _each_zone(doc, nodes, here, found):
            if offer.key in offers:
                where = f" in zone {shown(offer.zone)}" if offer.zone else ""
                told = f"{shown(doc.type)} is offered twice{where} on the {offer.market} market; remove one"
                found.add(here, told)
                continue
            offers[offer.key] = offer
            origins.append(at)
    return [*offers.values()], origins


def _nodes(doc: OfferDoc, path: Path, found: Findings, *, whole: bool) -> tuple[int, int]:
    """Return the fewest and the most nodes of a cluster; 0 for a machine."""
    if not whole:
        for name in ("nodes", "cluster_hour"):
            if getattr(doc, name) is not None:
                found.add(
                    (*path, name), f"is only for whole clusters, and these are machines of kind: {AGENTS}"
                )
        return 0, 0
    if doc.nodes is None:
        found.add(path, "has no `nodes`; write how many nodes a cluster may have, such as nodes: 1..10")
        return 0, 0
    first, _, last = str(doc.nodes).rpartition("..")
    least, most = int(first or 1), int(last)
    if not 1 <= least <= most <= MOST_NODES:
        told = f"{shown(str(doc.nodes))} is not a range of nodes; write the smaller number first, from 1 to {MOST_NODES}"
        found.add((*path, "nodes"), told)
    return least, most


def _each_zone(doc: OfferDoc, nodes: tuple[int, int], path: Path, found: Findings) -> list[Offer]:
    """Return an offer for each zone of an entry; of a whole cluster with so many nodes, or of a machine."""
    for name, text in (("type", doc.type), ("family", doc.family)):
        if not _is_word(text):
            found.add((*path, name), f"{shown(text)} has spaces or other characters that no type has")
    for at, zone in enumerate(doc.zones):
        if not _is_word(zone):
            found.add((*path, "zones", at), f"{shown(zone)} has spaces or other characters that no zone has")
    hour = 0
    if doc.hour is None:
        found.add(path, f"{shown(doc.type)} has no price; write `hour`, the price of one machine for an hour")
    else:
        hour = money(doc.hour, (*path, "hour"), found) or 0
    resources = Resources(
        read_cpu(doc.cpu, (*path, "cpu"), found) or 0,
        read_memory(doc.memory, (*path, "memory"), found) or 0,
        doc.gpu,
    )
    words = read_words(doc.offers, (*path, "offers"), found)
    own = 0 if doc.cluster_hour is None else money(doc.cluster_hour, (*path, "cluster_hour"), found) or 0
    least, most = nodes
    return [
        Offer(doc.type, resources, hour, zone, doc.spot, doc.family, words, doc.labels, most, least, own)
        for zone in (doc.zones or [""])
    ]


def _is_word(text: str) -> bool:
    return text.isprintable() and " " not in text


def _pool(
    doc: PoolDoc, provider: str, offers: list[Offer], billing: Billing, path: Path, found: Findings
) -> Pool:
    """Read the limits of a pool."""
    if doc.max < doc.min:
        found.add((*path, "max"), f"{doc.max} is below min, {doc.min}; raise max or lower min")
    boot = duration(doc.boot, (*path, "boot"), found, most=MOST_BOOT) or 0
    join = duration(doc.join_within, (*path, "join_within"), found, least=SECOND, most=DAY) or 0
    if join and join < boot:
        told = f"{shown(doc.join_within)} is less than boot, {format_duration(boot)}; write more"
        found.add((*path, "join_within"), told)
    return Pool(
        provider,
        tuple(offers),
        doc.min,
        doc.max,
        boot,
        join,
        None if doc.idle == AUTO else duration(doc.idle, (*path, "idle"), found, most=31 * DAY),
        _budget(doc, offers, first_held(billing, boot), path, found),
        doc.rate,
        duration(doc.alone_for, (*path, "alone_for"), found, most=MOST_LOST_AFTER) or 0,
    )


def _budget(doc: PoolDoc, offers: list[Offer], least: int, path: Path, found: Findings) -> PoolBudget | None:
    """Read the budget of a pool; it must pay for `least` nanoseconds of one machine."""
    if doc.budget is None:
        return None
    place: Path = (*path, "budget", "limit")
    limit = money(doc.budget.limit, place, found)
    if limit is None:
        return None
    costs = {offer.key: -(-_first_hour(offer) * least // HOUR) for offer in offers}
    if costs and limit < min(costs.values()):
        key = min(costs, key=lambda each: costs[each])
        what = "cluster" if offers[0].nodes else "machine"
        told = (
            f"{shown(doc.budget.limit)} cannot pay for one {what}: {key} costs {format_money(costs[key])} "
            f"for {format_duration(least)}, the least that is held for a {what}; raise the limit"
        )
        found.add(place, told)
    return PoolBudget(Per(doc.budget.per), limit)


def _first_hour(offer: Offer) -> int:
    """Return what an hour costs of a machine, or of a whole cluster with its fewest nodes, in millionths."""
    return offer.cluster_hour + offer.least * offer.hour if offer.nodes else offer.hour
