"""On-demand prices of a region, from the list that AWS publishes for everybody.

The list of a region has hundreds of megabytes, most of them about reserved and Windows machines. It is read as a stream,
and only what people need of it is kept. No credentials are needed.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import httpx

from spillover.model.units import UnitError, parse_money
from spillover.ports.provider import PriceList, ProviderError, TypePrice

URL: Final = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
_NEEDED: Final = (
    "TermType",
    "Unit",
    "PricePerUnit",
    "Currency",
    "Instance Type",
    "Operating System",
    "Tenancy",
)
_ONLY: Final = {
    "TermType": ("OnDemand",),
    "Unit": ("Hrs", "Hours"),
    "Operating System": ("Linux",),
    "Tenancy": ("Shared",),
    "Pre Installed S/W": ("NA", ""),
    "CapacityStatus": ("Used", ""),
    "MarketOption": ("OnDemand", ""),
}
"""Values that a row must have, where the list has the column."""
_EMPTY: Final = ("",) * 500
_SILENCE: Final = 60.0
"""Seconds without a byte after which the download fails."""
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d", re.ASCII)


def price_list(region: str, url: str | None = None) -> PriceList:
    """Read the on-demand prices of a region; raise ProviderError."""
    if _REGION.fullmatch(region) is None:
        raise ProviderError(f"{region[:80]!r} is not a region; write one such as eu-central-1")
    source = (url or URL).format(region=region)
    try:
        with httpx.stream("GET", source, timeout=_SILENCE, follow_redirects=True) as answer:
            if answer.status_code != httpx.codes.OK:
                raise ProviderError(f"{source} answers {answer.status_code}; is {region} a region of AWS?")
            published, prices = read_prices(answer.iter_lines())
    except (httpx.HTTPError, UnicodeDecodeError) as error:
        raise ProviderError(f"{source} cannot be read: {str(error) or type(error).__name__}") from None
    about = f"EC2 in {region}, on demand, Linux, shared hardware; published {published or 'without a date'}"
    return PriceList(about, tuple(prices))


def read_prices(lines: Iterable[str]) -> tuple[str, list[TypePrice]]:
    """Return when a price list was published, and the on-demand prices of Linux machines in it, by type."""
    rest = iter(lines)
    published, columns = _head(rest)
    found: dict[str, TypePrice] = {}
    # Most rows are about other terms. Looking for the word first saves taking them apart.
    for row in csv.reader(line for line in rest if "OnDemand" in line):
        value = dict(zip(columns, [*row, *_EMPTY], strict=False))  # a row that broke off has no values
        if (price := _price(value)) is not None and price.hour > getattr(found.get(price.type), "hour", 0):
            found[price.type] = price
    if not found:
        raise ProviderError(
            "the price list has no on-demand prices of Linux machines; its form may have changed"
        )
    return published, [found[type_] for type_ in sorted(found)]


def _head(lines: Iterator[str]) -> tuple[str, list[str]]:
    """Return the date and the names of columns. Some lines of remarks are before them."""
    published = ""
    for row in csv.reader(_some(lines, 20)):
        if row[:1] == ["Publication Date"]:
            published = row[1]
        if row[:1] == ["SKU"]:
            if lacking := [name for name in _NEEDED if name not in row]:
                raise ProviderError(
                    f"the price list has no column {', '.join(lacking)}; its form has changed"
                )
            return published, row
    raise ProviderError("this is not a price list: it has no line with the names of columns")


def _some(lines: Iterator[str], most: int) -> Iterator[str]:
    """Take lines one at a time, because the rest is read by another reader."""
    for _, line in zip(range(most), lines, strict=False):
        yield line


def _price(row: Mapping[str, str]) -> TypePrice | None:
    """Return the price of a row; None if it is not one that people pay for a machine of ours."""
    if any(row[name] not in values for name, values in _ONLY.items() if name in row):
        return None
    try:
        hour = parse_money(row["PricePerUnit"])
    except UnitError:
        return None
    type_ = row["Instance Type"]
    if not type_ or not hour:
        return None
    memory = row.get("Memory", "").removesuffix("GiB").replace(",", "").strip()
    return TypePrice(type_, hour, row["Currency"], row.get("vCPU", ""), memory, row.get("GPU", ""))
