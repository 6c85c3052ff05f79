"""Containers as machines: what is wrong with options and offers, and what errors of the engine mean."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.model.pools import RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import NotNow, ProviderError, Refused, Unknown
from spillover.providers.podman import provider as podman
from spillover.providers.podman.engine import refusal
from spillover.providers.podman.provider import PodmanForm, PodmanKind, PodmanProvider
from spillover.testing.provider_suite import ProviderSuite, an_opening

run = asyncio.run
OFFER = ProviderSuite.offer
ORDER = ProviderSuite().an_order()


def opened(folder: Path, script: str) -> PodmanProvider:
    """A provider whose engine is a shell script."""
    engine = folder / "engine"
    engine.write_text(f"#!/bin/sh\n{script}\n")
    engine.chmod(0o700)
    return PodmanKind().open(PodmanForm("r/spillover", engine=str(engine)), an_opening(folder / "data"))


def test_what_is_wrong_with_options_and_offers_is_told() -> None:
    form = PodmanForm(engine_options=["--tmpfs=/scratch", "scratch", "--rm", "--name=x"])
    offers = [
        OFFER,
        replace(OFFER, spot=True),
        replace(OFFER, zone="a"),
        replace(OFFER, resources=Resources(1000, 2**30, 1)),
    ]
    assert [*PodmanKind().check(form, offers)] == [
        (("image",), "is missing; name an image with Spillover, such as one of deploy/Dockerfile"),
        (("engine_options", 1), "must begin with a hyphen; write --OPTION=VALUE, not scratch"),
        (("engine_options", 2), "is set by Spillover; leave it out"),
        (("engine_options", 3), "is set by Spillover; leave it out"),
        (("offers", 1), "there are no spot containers; leave out spot"),
        (("offers", 2), "containers have no zones; leave out zones"),
        (
            ("offers", 3),
            "containers have no GPUs unless engine_options passes some, such as --device=nvidia.com/gpu=all",
        ),
    ]
    passing = PodmanForm("r/spillover", engine_options=["--device=nvidia.com/gpu=all"])
    assert not PodmanKind().check(passing, [offers[0], offers[3]])


def test_an_engine_that_is_not_installed_is_named() -> None:
    (line,) = PodmanKind().missing(PodmanForm(engine="no-such-engine"), {}, Path())
    assert line == (
        "the provider podman needs the program no-such-engine; install it (apt-get install podman), "
        "or set the option engine"
    )
    assert not PodmanKind().missing(PodmanForm(engine="sh"), {"PATH": "/bin"}, Path())


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("creating container storage: mkdir /x: no space left on device", RefusalCause.CAPACITY),
        ("unauthorized: authentication required", RefusalCause.AUTH),
        ("unable to find network with name or ID lan: network not found", RefusalCause.INVALID),
        ("localhost/none:1: image not known", RefusalCause.INVALID),
    ],
)
def test_an_error_that_stays_refuses_the_order(error: str, cause: RefusalCause) -> None:
    assert refusal(error) == Refused(cause, error)


def test_an_error_of_the_network_passes() -> None:
    for error in ("dial tcp 10.0.0.1:443: connect: connection refused", "toomanyrequests: slow down"):
        assert refusal(error) == NotNow(error)


def test_an_engine_that_takes_too_long_may_have_made_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman, "LONGEST_PULL", 0.3)
    provider = opened(tmp_path, "case $1 in info) echo '[\"cpu\"]';; create) exec sleep 100;; esac")
    answer = run(provider.create(ORDER))
    assert isinstance(answer, Unknown)
    assert answer.why.endswith("engine create took longer than 0 s")


def test_what_cannot_be_read_is_no_listing(tmp_path: Path) -> None:
    for script, why in (("echo '[{]'", "cannot be read"), ("echo broken >&2; exit 1", "ps failed: broken")):
        with pytest.raises(ProviderError, match=why):
            run(opened(tmp_path, script).list())


def test_an_engine_that_cannot_be_started_makes_nothing(tmp_path: Path) -> None:
    provider = opened(tmp_path, "")
    (tmp_path / "engine").unlink()
    answer = run(provider.create(ORDER))
    assert isinstance(answer, NotNow)
    assert "cannot be started: " in answer.why
