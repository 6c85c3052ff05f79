"""Somebody looks what another policy would mean for the jobs of this server, and sets it."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import Site
from tests.support.processes import await_ends


def test_the_policy_is_changed_along_the_slider(sites: Callable[..., Site]) -> None:
    site = sites()
    admin = site.person()
    for at in range(12):
        admin.submits(
            "worked",
            "sleep 0.3",
            ("vision", "bio")[at % 2],
            resources={"cpu": 2},
            walltime="1m",
            estimate="1s",
        )
    with site.server.client() as client:
        await_ends(client)
    page = admin.goes_to("/policy").page
    expect(page.get_by_text("Nothing is computed yet")).to_be_visible()
    page.get_by_role("button", name="Compute").click()
    slider = page.get_by_role("slider")
    expect(slider).to_be_visible(timeout=60_000)
    frontier = page.get_by_role("region", name="Frontier")
    expect(frontier).to_contain_text("12 jobs")
    slider.press("Home")
    cheap_to_wait = slider.get_attribute("aria-valuetext")
    slider.press("End")
    expect(slider).not_to_have_attribute("aria-valuetext", str(cheap_to_wait))
    expect(frontier.locator(".figure").first).to_contain_text("0.00 USD")
    expect(frontier.get_by_role("table", name="What it means for projects")).to_contain_text("vision")
    slider.press("Home")
    expect(frontier.locator("code").first).to_have_text("wait=zero")
    frontier.get_by_role("button", name="Set this policy").click()
    expect(page.get_by_role("dialog")).to_contain_text("wait: compute(0.5) -> zero")
    page.get_by_role("dialog").get_by_role("button", name="Set").click()
    history = page.get_by_role("table", name="History of the policies")
    expect(history.get_by_role("row").nth(1)).to_contain_text("ada")
    expect(history.get_by_role("row").nth(1)).to_contain_text("compute(0.5) -> zero")
    assert admin.asks("GET", "/v1/policy")["policy"].startswith("wait=zero,")
    page.get_by_role("button", name="Return to spill.yaml").click()
    page.get_by_role("dialog").get_by_role("button", name="Set").click()
    expect(history.get_by_role("row").nth(1)).to_contain_text("zero -> compute(0.5)")


def test_policies_set_by_hand_are_checked_first(site: Site) -> None:
    page = site.person().goes_to("/policy").page
    text = page.get_by_label("Policies that you do not name stay as they are")
    text.fill("wait=computed(0.1)")
    page.get_by_role("button", name="Look and set").click()
    expect(page.get_by_role("alert").filter(has_text="computed")).to_be_visible()
    text.fill("order=priority")
    page.get_by_role("button", name="Look and set").click()
    expect(page.get_by_role("dialog")).to_contain_text("order: fifo -> priority")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("row").filter(has_text="which job is tried first")).to_contain_text("fifo")


def test_somebody_who_may_not_change_policies_sees_them(site: Site) -> None:
    page = site.person("maintain", "bo").goes_to("/policy").page
    expect(page.get_by_role("row").filter(has_text="how long a job waits")).to_contain_text("compute(0.5)")
    expect(page.get_by_text("An administrator can let the server compute")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Compute|Look and set"))).to_have_count(0)
