"""The price list of a region, as AWS publishes it, over HTTP."""

import csv
import io
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spillover.cli.main import main
from spillover.ports.provider import ProviderError, TypePrice
from spillover.providers.aws import pricelist
from spillover.providers.aws.pricelist import price_list as prices_of
from spillover.providers.aws.pricelist import read_prices

COLUMNS = [
    "SKU",
    "OfferTermCode",
    "RateCode",
    "TermType",
    "PriceDescription",
    "EffectiveDate",
    "StartingRange",
    "EndingRange",
    "Unit",
    "PricePerUnit",
    "Currency",
    "Product Family",
    "Location",
    "Instance Type",
    "vCPU",
    "Memory",
    "Tenancy",
    "Operating System",
    "License Model",
    "CapacityStatus",
    "GPU",
    "Pre Installed S/W",
    "MarketOption",
]
USUAL = {
    "TermType": "OnDemand",
    "Unit": "Hrs",
    "Currency": "USD",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "CapacityStatus": "Used",
    "Pre Installed S/W": "NA",
    "MarketOption": "OnDemand",
    "PriceDescription": 'it says "OnDemand", with commas',
}


def price_list(*rows: dict[str, str]) -> str:
    """Return a list in the form of AWS: five remarks, the columns, the rows."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(
        (
            ("FormatVersion", "v1.0"),
            ("Disclaimer", "This list is for information, and not an offer"),
            ("Publication Date", "2026-11-12T19:02:31Z"),
            ("Version", "20261112190231"),
            ("OfferCode", "AmazonEC2"),
            COLUMNS,
        )
    )
    writer.writerows([[(USUAL | row).get(name, "") for name in COLUMNS] for row in rows])
    return text.getvalue()


ROWS = (
    {"Instance Type": "m7i.large", "PricePerUnit": "0.1131000000", "vCPU": "2", "Memory": "8 GiB"},
    {
        "Instance Type": "p5.48xlarge",
        "PricePerUnit": "98.3200000000",
        "vCPU": "192",
        "Memory": "2,048 GiB",
        "GPU": "8",
    },
    {"Instance Type": "m7i.large", "PricePerUnit": "0.2051000000", "Operating System": "Windows"},
    {"Instance Type": "m7i.large", "PricePerUnit": "0.1244000000", "Tenancy": "Dedicated"},
    {"Instance Type": "m7i.large", "PricePerUnit": "0.6000000000", "Pre Installed S/W": "SQL Std"},
    {
        "Instance Type": "m7i.large",
        "PricePerUnit": "0.9000000000",
        "CapacityStatus": "AllocatedCapacityReservation",
    },
    {"Instance Type": "m7i.large", "PricePerUnit": "0.0712000000", "TermType": "Reserved"},
    {"Instance Type": "m7i.metal", "PricePerUnit": "0.0000000000"},
    {"Instance Type": "", "PricePerUnit": "0.0500000000", "Unit": "GB-Mo"},
    {"Instance Type": "t3.nano", "PricePerUnit": "soon"},
    {"Instance Type": "t4g.nano", "PricePerUnit": "0.0048000001"},
)


def test_only_what_people_pay_for_linux_machines_on_demand_is_read() -> None:
    published, prices = read_prices(price_list(*ROWS).splitlines())
    assert published == "2026-11-12T19:02:31Z"
    assert prices == [
        TypePrice("m7i.large", 113_100, "USD", "2", "8"),
        TypePrice("p5.48xlarge", 98_320_000, "USD", "192", "2048", "8"),
        TypePrice("t4g.nano", 4_801, "USD"),
    ]


class Site:
    """A web server with one answer."""

    def __init__(self, text: str = "", status: int = 200, missing: int = 0) -> None:
        content = text.encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content) + missing))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self.asked = asked = list[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/{{region}}/index.csv"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def sites() -> Iterator[list[Site]]:
    opened: list[Site] = []
    yield opened
    for site in opened:
        site.close()


def test_the_prices_of_a_region_are_read_from_its_list(sites: list[Site]) -> None:
    sites.append(site := Site(price_list(*ROWS)))
    found = prices_of("eu-central-1", site.url)
    assert site.asked == ["/eu-central-1/index.csv"]
    assert found.about == (
        "EC2 in eu-central-1, on demand, Linux, shared hardware; published 2026-11-12T19:02:31Z"
    )
    assert [(each.type, each.hour, each.cpu, each.memory, each.gpu) for each in found.prices] == [
        ("m7i.large", 113_100, "2", "8", ""),
        ("p5.48xlarge", 98_320_000, "192", "2048", "8"),
        ("t4g.nano", 4_801, "", "", ""),
    ]


def test_prices_become_offers_in_a_file_with_the_date_in_its_name(
    sites: list[Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sites.append(site := Site(price_list(*ROWS)))
    monkeypatch.setattr(pricelist, "URL", site.url)
    monkeypatch.chdir(tmp_path)
    asked = ["pools", "prices", "--provider", "aws", "--region", "eu-central-1"]
    assert main(asked) == 0
    (path,) = tmp_path.iterdir()
    assert capsys.readouterr().out.strip() == path.name
    assert re.fullmatch(r"aws-eu-central-1-20\d\d-\d\d-\d\d\.yaml", path.name)
    assert path.read_text().splitlines()[2:] == [
        "offers:",
        "- {type: m7i.large, cpu: 2, memory: 8Gi, hour: 0.1131}",
        "- {type: p5.48xlarge, cpu: 192, memory: 2048Gi, gpu: 8, hour: 98.32}",
        "# t4g.nano: 0.004801; the list does not say its CPUs and memory",
    ]
    assert main([*asked, "--out", "prices.yaml"]) == 0
    assert (tmp_path / "prices.yaml").read_text() == path.read_text()
    capsys.readouterr()
    assert main([*asked, "--out", "no/such/folder.yaml"]) == 2
    assert "cannot write no/such/folder.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--provider", "asw", "--region", "eu-central-1"], "asw"),
        (["--provider", "gce", "--region", "europe-west1"], "the provider gce has no list of prices"),
        (["--provider", "aws", "--region", "../x"], "is not a region; write one such as eu-central-1"),
        (["--provider", "aws"], "name a provider and a region"),
    ],
)
def test_prices_that_cannot_be_had_are_one_clear_line(
    words: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pools", "prices", *words]) == 2
    told = capsys.readouterr().err
    assert (why in told, told.count("\n")) == (True, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (lambda: Site("<html>", 404), "answers 404; is eu-central-1 a region of AWS?"),
        (lambda: Site(price_list(*ROWS), missing=100), "cannot be read: "),
        (lambda: Site("hello\nworld\n"), "this is not a price list"),
        (lambda: Site(price_list(ROWS[2])), "no on-demand prices of Linux machines"),
        (lambda: Site(price_list(*ROWS).replace("PricePerUnit", "Price")), "no column PricePerUnit"),
    ],
)
def test_a_list_that_cannot_be_read_is_one_line(sites: list[Site], site: object, why: str) -> None:
    sites.append(opened := site())  # type: ignore[operator]
    with pytest.raises(ProviderError, match=why.replace("?", r"\?")) as raised:
        prices_of("eu-central-1", opened.url)
    assert str(raised.value).isprintable()


def test_what_is_not_a_region_is_not_asked_for() -> None:
    with pytest.raises(ProviderError, match=r"'\.\./x' is not a region; write one such as eu-central-1"):
        prices_of("../x")
