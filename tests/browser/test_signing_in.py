"""People sign in with a token or a link, see what their role allows, and sign out."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site


def test_somebody_signs_in_with_a_token_and_comes_to_the_page_they_asked_for(site: Site) -> None:
    someone = site.person(role=None)
    someone.goes_to("/jobs?state=FAILED")
    expect(someone.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert someone.page.url == f"{site.server.url}/sign-in"
    someone.page.get_by_label("Token").fill(site.token_of("read", "bo"))
    someone.page.keyboard.press("Enter")
    expect(someone.page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    assert someone.page.url.endswith("/jobs?state=FAILED")
    # No script can read what they are signed in with.
    assert someone.page.evaluate("document.cookie") == ""


def test_a_token_that_is_not_valid_is_refused_in_the_words_of_the_server(site: Site) -> None:
    someone = site.person(role=None).goes_to("/sign-in")
    someone.page.get_by_label("Token").fill("spt_nobody_nothing")
    someone.page.get_by_role("button", name="Sign in").click()
    expect(someone.page.get_by_role("alert")).to_contain_text("invalid")
    someone.page.get_by_label("Token").fill(site.token_of("read", "bo"))
    someone.page.get_by_role("button", name="Sign in").click()
    expect(someone.page.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_link_signs_in_once_and_its_code_leaves_the_address(site: Site) -> None:
    link = site.person().asks("POST", "/v1/sign-in/links")["url"]
    path = link.removeprefix(site.server.url)
    other = site.person(role=None).goes_to(path)
    expect(other.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert "#" not in other.page.url
    third = site.person(role=None).goes_to(path)
    expect(third.page.get_by_role("alert")).to_be_visible()
    expect(third.page.get_by_text("A link signs in once")).to_be_visible()


def test_signing_out_ends_it_here_and_elsewhere_when_it_is_revoked(site: Site) -> None:
    token = site.token_of("admin", "ada")
    first, second = site.person(role=None).signs_in(token), site.person(role=None).signs_in(token)
    first.goes_to("/account")
    row = first.page.get_by_role("row").filter(has=first.page.get_by_text("this one"))
    expect(row).to_have_count(1)
    mine = second.asks("GET", "/v1/me")["sign_in"]
    first.page.locator(f'[data-key="end-{mine}"]').click()
    expect(first.page.get_by_text("That sign-in has ended")).to_be_visible()
    second.page.get_by_role("link", name="Jobs", exact=True).click()
    expect(second.page.get_by_role("heading", name="Sign in")).to_be_visible()
    first.page.get_by_role("main").get_by_role("button", name="Sign out").click()
    expect(first.page.get_by_role("heading", name="Sign in")).to_be_visible()
    first.goes_to("/jobs")
    expect(first.page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_reader_sees_everything_and_is_offered_no_change(site: Site) -> None:
    owner = site.person("submit", "bo")
    job = owner.submits("readable", "sleep 60", hold=True)
    reader = site.person("read", "cy")
    expect(reader.page.get_by_role("link", name="Submit", exact=True)).to_have_count(0)
    reader.goes_to(f"/jobs/{job}")
    expect(reader.page.get_by_role("heading", name="readable")).to_be_visible()
    expect(reader.page.get_by_role("heading", name="Life")).to_be_visible()
    for button in ("Cancel", "Release", "Change", "Run again"):
        expect(reader.page.get_by_role("button", name=button, exact=True)).to_have_count(0)
    reader.goes_to("/jobs?name=readable")
    expect(reader.page.get_by_role("link", name="readable")).to_be_visible()
    expect(reader.page.get_by_role("checkbox")).to_have_count(0)
    reader.goes_to("/clusters")
    expect(reader.page.get_by_role("link", name="n1", exact=True).first).to_be_visible()
    expect(reader.page.get_by_role("button", name="Drain")).to_have_count(0)
    owner.asks("POST", "/v1/actions", {"act": "cancel", "jobs": [job]})


def test_somebody_of_one_project_sees_only_that(site: Site) -> None:
    admin = site.person()
    jobs = [admin.submits(f"of-{name}", "true", name, hold=True) for name in ("bio", "vision")]
    biologist = site.person("submit", "bo", project="bio").goes_to("/jobs?state=HELD")
    expect(biologist.page.get_by_role("link", name="of-bio")).to_be_visible()
    expect(biologist.page.get_by_role("link", name="of-vision")).to_have_count(0)
    biologist.goes_to(f"/jobs/{jobs[1]}")
    expect(biologist.page.get_by_role("alert")).to_contain_text("no job")
    expect(biologist.page.get_by_text("it belongs to a project that you may not see")).to_be_visible()
    admin.asks("POST", "/v1/actions", {"act": "cancel", "jobs": jobs})


@pytest.mark.parametrize("role", ["read", "submit"])
def test_what_the_page_does_not_offer_the_server_refuses(site: Site, role: str) -> None:
    someone = site.person(role, "cy")
    refused = someone.page.evaluate(
        """async () => {
            const { post } = await import('/assets/api.js');
            try { await post('/v1/agents/actions', {act: 'drain', agents: ['onprem/n1']}); return ''; }
            catch (error) { return error.message; }
        }"""
    )
    assert refused == f"a token of role {role} may not do this; use one of role admin"


def test_a_stopped_sign_in_leads_to_the_door_and_back_to_where_one_was(sites: Callable[..., Site]) -> None:
    site = sites()
    someone = site.person("admin", "ada").goes_to("/costs?by=user")
    expect(someone.page.get_by_role("heading", name="Costs and usage")).to_be_visible()
    tokens = [each["id"] for each in someone.asks("GET", "/v1/sign-ins")]
    other = site.person("admin", "bo")
    other.asks("POST", "/v1/sign-ins/revoke", {"id": tokens[0]})
    # The live stream ends with the sign-in, and the page notices without being touched.
    expect(someone.page.get_by_role("heading", name="Sign in")).to_be_visible()
    someone.page.get_by_label("Token").fill(site.token_of("admin", "ada"))
    someone.page.get_by_role("button", name="Sign in").click()
    expect(someone.page.get_by_role("heading", name="Costs and usage")).to_be_visible()
    assert someone.page.url.endswith("/costs?by=user")
