"""URLs that the server sends to: what is refused, and that no password gets into a message."""

import pytest

from spillover.config.urls import wrong_url


def told(text: str, private: str = "messages") -> str:
    return wrong_url(text, "https://HOST", instead="the path", private=private)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org",
        "https://example.org:4318/a?b",
        "http://localhost:1/",
        "http://127.0.0.1",
        "http://[::1]:80/x",
    ],
)
def test_secrets_go_over_tls_or_stay_on_this_machine(text: str) -> None:
    assert told(text) == ""


@pytest.mark.parametrize("text", ["http://example.org", "http://10.0.0.1:4318", "http://[2001:db8::1]/"])
def test_what_is_secret_does_not_go_to_other_hosts_in_the_clear(text: str) -> None:
    assert (
        told(text) == f"{text!r} would send messages in the clear; write https, or an address of this machine"
    )
    assert told(text, private="") == ""


@pytest.mark.parametrize(
    "text", ["", "x", "ftp://a", "https://", "https://a:x/", "https://a:0", "https://a b", "https://ä"]
)
def test_what_is_no_url_is_refused(text: str) -> None:
    assert told(text) == f"{text!r} is not a URL; write https://HOST"


@pytest.mark.parametrize(
    "text",
    [
        "https://ada:hunter2@example.org",
        "https://hunter2@example.org",
        "http://:hunter2@localhost",
        "grpc://ada:hunter2@example.org",
        "ada:hunter2@example.org",
        "https://ada:hunter2@example.org:x",
    ],
)
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    assert told(text)
    assert "hunter2" not in told(text)
