"""Notifications of spill.yaml: webhooks, mail, and who is told of what."""

import pytest

from spillover.config.read import read_config
from spillover.forms.problems import BadForm
from spillover.model.notifications import Mail, Notifications, Rule, Webhook, When
from spillover.model.units import DAY, HOUR, SECOND

HEAD = "apiVersion: spillover/v1\nkind: Config\n"
FULL = """\
notifications:
  webhooks:
  - {name: chat, url: "https://chat.example.org/hook", secret_file: /etc/chat.secret, projects: [vision], timeout: 5s}
  - {name: pager, url: "http://127.0.0.1:9/x", secret_env: PAGER, ca: ca.pem, projects: all}
  - {name: log, url: "https://[::1]:8443/", secret_file: s}
  mail:
    server: smtp.example.org
    from: spill@example.org
    security: tls
    user: spill
    password_file: /etc/mail.password
    domains: [Example.org]
    timeout: 1m
  rules:
  - {to: [pager, ops@example.org], on: [agent_lost, cluster_failed, cluster_ready, pool_paused, budget]}
  - {to: [chat], on: [fail, budget], projects: [vision]}
  give_up_after: 2h
"""


def problems(text: str) -> list[str]:
    """Return the problems with `notifications`, without where the file is."""
    with pytest.raises(BadForm) as raised:
        read_config(HEAD + text)
    return [f"{each.path}: {each.message}" for each in raised.value.problems]


def test_notifications_are_read() -> None:
    read = read_config(HEAD + FULL).notifications
    chat = Webhook(
        "chat",
        "https://chat.example.org/hook",
        "/etc/chat.secret",
        projects=("vision",),
        timeout=5 * SECOND,
    )
    pager = Webhook("pager", "http://127.0.0.1:9/x", None, "PAGER", "ca.pem", None)
    log = Webhook("log", "https://[::1]:8443/", "s")
    assert read == Notifications(
        (chat, pager, log),
        Mail(
            "smtp.example.org",
            "spill@example.org",
            465,
            "tls",
            "spill",
            "/etc/mail.password",
            domains=("example.org",),
            timeout=60 * SECOND,
        ),
        (
            Rule(
                ("pager", "ops@example.org"),
                (
                    When.AGENT_LOST,
                    When.CLUSTER_FAILED,
                    When.CLUSTER_READY,
                    When.POOL_PAUSED,
                    When.BUDGET,
                ),
            ),
            Rule(("chat",), (When.FAIL, When.BUDGET), ("vision",)),
        ),
        2 * HOUR,
    )
    assert [each.takes("vision") for each in read.webhooks] == [True, True, False]
    assert [each.takes("film") for each in read.webhooks] == [False, True, False]
    assert read.mail is not None
    assert read.mail.takes("ada@EXAMPLE.org")
    assert not read.mail.takes("ada@example.org.evil.com")


def test_without_any_nothing_is_sent() -> None:
    assert read_config(HEAD).notifications == Notifications()
    assert Notifications().give_up_after == DAY


@pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_the_port_follows_from_the_security(security: str, port: int) -> None:
    text = f"notifications: {{mail: {{server: s, from: a@b.c, security: {security}}}}}\n"
    mail = read_config(HEAD + text).notifications.mail
    assert mail is not None
    assert (mail.port, mail.user) == (port, None)


HOOK = "{name: a, url: 'https://a.b/', secret_file: s"
MAIL = "server: s, from: a@b.c"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"webhooks: [{HOOK}}}, {HOOK}}}]", "webhooks[1].name: is a second webhook 'a'; choose another name"),
        (
            "webhooks: [{name: a, url: 'ftp://a', secret_file: s}]",
            "webhooks[0].url: 'ftp://a' is not a URL; write https://HOST/PATH",
        ),
        (
            "webhooks: [{name: a, url: 'https://a:x/', secret_file: s}]",
            "webhooks[0].url: 'https://a:x/' is not a URL; write https://HOST/PATH",
        ),
        (
            "webhooks: [{name: a, url: 'http://a.b/', secret_file: s}]",
            "webhooks[0].url: 'http://a.b/' would send messages in the clear; write https, or an address of this machine",
        ),
        (
            "webhooks: [{name: a, url: 'https://u:p@a.b/', secret_file: s}]",
            "webhooks[0].url: has a user or a password, which would show in logs; put a token into the path instead",
        ),
        (
            "webhooks: [{name: a, url: 'https://a.b/'}]",
            "webhooks[0]: has no secret; set secret_file to a file with the secret that signs messages, as from `openssl rand -base64 32`",
        ),
        (
            f"webhooks: [{HOOK}, secret_env: S}}]",
            "webhooks[0].secret_env: is there beside secret_file; remove one of them",
        ),
        (
            "mail: {server: s, from: ada}",
            "mail.from: 'ada' is not a mail address; write spill@example.org",
        ),
        (
            "mail: {server: 'smtp://s', from: a@b.c}",
            "mail.server: 'smtp://s' is not a server; write its name, such as smtp.example.org",
        ),
        (f"mail: {{{MAIL}, user: u}}", "mail.user: needs a password; set password_file or password_env"),
        (
            f"mail: {{{MAIL}, password_env: P}}",
            "mail: has a password and no user; set user, or remove the password",
        ),
        (
            f"mail: {{{MAIL}, user: u, password_env: P, security: none}}",
            "mail.security: `none` would send the password in the clear; write starttls or tls",
        ),
        (f"mail: {{{MAIL}, domains: ['a b']}}", "mail.domains[0]: 'a b' is not a domain; write example.org"),
        ("rules: [{to: [chat], on: [end]}]", "rules[0].to[0]: there is no webhook 'chat'; webhooks: none"),
        (
            "rules: [{to: [a@b.c], on: [end]}]",
            "rules[0].to[0]: 'a@b.c' cannot get mail; set notifications.mail",
        ),
        ("rules: [{to: ['a@b.c,d@e.f'], on: [end]}]", "rules[0].to[0]: 'a@b.c,d@e.f' is not a mail address"),
        (
            f"webhooks: [{HOOK}}}], rules: [{{to: [a], on: [end, agent_lost], projects: [p]}}]",
            "rules[0].projects: agent_lost belongs to no project; write a rule without projects for it",
        ),
        ("give_up_after: 1s", "give_up_after: '1s' is out of range; the minimum is 1m"),
    ],
)
def test_each_problem_is_one_line_that_says_what_to_do(text: str, told: str) -> None:
    assert problems(f"notifications: {{{text}}}\n") == [f"notifications.{told}"]


def test_an_event_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    (told,) = problems(f"notifications: {{webhooks: [{HOOK}}}], rules: [{{to: [a], on: [ended]}}]}}\n")
    assert told.startswith("notifications.rules[0].on[0]: ")
    assert "end" in told
