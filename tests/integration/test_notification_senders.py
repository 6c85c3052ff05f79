"""Messages over real connections: signed webhooks, and mail through a real SMTP server."""

import asyncio
import base64
import hashlib
import hmac
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.forms.problems import path_text
from spillover.model.notifications import Mail, Notifications, Webhook
from spillover.model.units import SECOND
from spillover.ports.outbox import Message
from spillover.ports.sender import Unsent
from spillover.server.certificates import make_certificates
from spillover.server.senders.files import problems_of
from spillover.server.senders.mail import MailSender
from spillover.server.senders.webhooks import WebhookSender
from spillover.wire.notices import Notice, NoticeJob, NoticeReason, encode_notice
from tests.support.receivers import HttpReceiver, http_receiver, smtp_receiver

SECRET = b"0123456789abcdef0123456789abcdef"
JOB = NoticeJob(
    id="k4x2m7p3vqwe",
    name="train",
    user="ada",
    project="vision",
    queue="default",
    state="FAILED",
    attempt=2,
    reason=NoticeReason("exit_code", "exited with code 3"),
    cluster="onprem",
    node="n1",
    exit_code=3,
    submitted_at="2027-01-31T10:00:00Z",
    started_at="2027-01-31T10:01:00Z",
    finished_at="2027-01-31T11:03:00Z",
    ran_s=3720.0,
    cost=1.5,
    currency="EUR",
)


def a_message(to: str, notice: Notice | None = None) -> Message:
    text = "job train (k4x2m7p3vqwe) of project vision failed: exited with code 3"
    found = notice or Notice("ab12", "fail", "2027-01-31T11:03:00Z", text, to=to, project="vision", job=JOB)
    return Message("ab12", "mail" if "@" in to else f"webhook/{to}", to, "vision", 1, encode_notice(found), 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    (tmp_path / "password").write_text("hunter2\n")
    return tmp_path


def hook_to(receiver: HttpReceiver, folder: Path, **changes: Any) -> Webhook:
    return replace(Webhook("chat", receiver.url, str(folder / "secret")), **changes)


def verify(secret: bytes, headers: dict[str, str], body: bytes, now: float) -> bool:
    """As docs/notifications.md has it."""
    sent = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    good = base64.b64encode(hmac.digest(secret, sent, hashlib.sha256)).decode()
    fresh = abs(now - int(headers["webhook-timestamp"])) < 300
    given = [each.partition(",")[2] for each in headers["webhook-signature"].split()]
    return fresh and any(hmac.compare_digest(each, good) for each in given)


# --- webhooks


async def test_a_receiver_can_tell_that_a_message_is_ours_and_new(folder: Path) -> None:
    message = a_message("chat")
    async with http_receiver() as receiver:
        await WebhookSender(hook_to(receiver, folder)).send(message)
        ((headers, body),) = receiver.got
    assert body == message.body
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == message.id
    now = time.time()
    assert verify(SECRET, headers, body, now)
    assert not verify(SECRET, headers, body + b" ", now), "somebody changed it"
    assert not verify(SECRET, headers | {"webhook-id": "cd34"}, body, now)
    assert not verify(b"another secret here", headers, body, now)
    assert not verify(SECRET, headers, body, now + 301), "somebody sends an old one again"


async def test_a_new_secret_is_used_beside_the_old_one_until_that_is_removed(folder: Path) -> None:
    encoded = base64.b64encode(b"another secret, of 32 bytes here").decode()
    (folder / "secret").write_text(f"whsec_{encoded}\n{SECRET.decode()}\n")
    async with http_receiver() as receiver:
        await WebhookSender(hook_to(receiver, folder)).send(a_message("chat"))
        ((headers, body),) = receiver.got
    for secret in (SECRET, b"another secret, of 32 bytes here"):
        assert verify(secret, headers, body, time.time())


@pytest.mark.parametrize(
    ("status", "told", "final"),
    [
        (500, "answered with status 500", False),
        (404, "answered with status 404", False),
        (410, "answered with status 410", True),
        (302, "answered with status 302, a redirect, which is not followed; set its present url", False),
    ],
)
async def test_other_answers_than_success_are_told(folder: Path, status: int, told: str, final: bool) -> None:
    async with http_receiver() as elsewhere, http_receiver() as receiver:
        receiver.status, receiver.headers = status, {"Retry-After": "7", "Location": elsewhere.url}
        with pytest.raises(Unsent) as raised:
            await WebhookSender(hook_to(receiver, folder)).send(a_message("chat"))
        assert elsewhere.got == []
    assert (str(raised.value), raised.value.final, raised.value.after) == (told, final, 7.0)


async def test_a_receiver_that_does_not_answer_costs_its_time_out(folder: Path) -> None:
    async with http_receiver() as receiver:
        receiver.silent = True
        hook = hook_to(receiver, folder, timeout=SECOND // 5)
        with pytest.raises(Unsent, match=r"no answer within 0.2 s"):
            await WebhookSender(hook).send(a_message("chat"))
    with pytest.raises(Unsent, match="no answer: ") as raised:
        await WebhookSender(hook).send(a_message("chat"))
    assert not raised.value.final


async def test_a_certificate_of_another_authority_is_refused(folder: Path) -> None:
    make_certificates(folder, ["127.0.0.1"], 1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    async with http_receiver(context) as receiver:
        hook = hook_to(receiver, folder, url=receiver.url.replace("http:", "https:"))
        with pytest.raises(Unsent, match=r"(?i)certificate"):
            await WebhookSender(hook).send(a_message("chat"))
        assert receiver.got == []
        await WebhookSender(replace(hook, ca=str(folder / "ca.pem"))).send(a_message("chat"))
        assert len(receiver.got) == 1


# --- mail


@pytest.fixture
def authority(folder: Path) -> ssl.SSLContext:
    """Certificates of an authority that only `ca.pem` knows."""
    make_certificates(folder, ["127.0.0.1"], 1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    return context


def mail_to(port: int, **changes: Any) -> Mail:
    return replace(Mail("127.0.0.1", "spill@example.org", port, "none"), **changes)


async def test_a_mail_says_what_a_person_wants_to_know(folder: Path) -> None:
    async with smtp_receiver() as receiver:
        await MailSender(mail_to(receiver.port)).send(a_message("ada@example.org"))
        (mail,), (to,) = receiver.got, receiver.to
    assert to == ["ada@example.org"]
    assert mail["To"] == "ada@example.org"
    assert mail["From"] == "Spillover <spill@example.org>"
    assert mail["Subject"] == "[spill] train FAILED: exited with code 3"
    assert mail["Message-ID"] == "<ab12@example.org>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().replace("\r\n", "\n") == (
        "Job train (k4x2m7p3vqwe) of project vision failed: exited with code 3.\n"
        "\n"
        "Job        k4x2m7p3vqwe\n"
        "User       ada\n"
        "State      FAILED\n"
        "Why        exited with code 3\n"
        "Where      onprem/n1\n"
        "Ran        1h2m (attempt 2)\n"
        "Submitted  2027-01-31 10:00:00 UTC\n"
        "Started    2027-01-31 10:01:00 UTC\n"
        "Ended      2027-01-31 11:03:00 UTC\n"
        "Cost       1.50 EUR\n"
        "\n"
        "More: spill show k4x2m7p3vqwe, and spill logs k4x2m7p3vqwe\n"
        "\n"
        "-- \n"
        "Sent by Spillover.\n"
    )


async def test_texts_of_people_add_no_headers_and_no_lines() -> None:
    evil = "exited\r\nBcc: eve@example.org\r\n\r\nclick here"
    job = replace(JOB, reason=NoticeReason("exit_code", evil))
    notice = Notice("ab12", "fail", "2027-01-31T11:03:00Z", f"job failed: {evil}", to="a@b.c", job=job)
    async with smtp_receiver() as receiver:
        await MailSender(mail_to(receiver.port)).send(a_message("a@b.c", notice))
        (mail,), (to,) = receiver.got, receiver.to
    assert to == ["a@b.c"]
    assert mail["Bcc"] is None
    assert mail["Subject"] == "[spill] train FAILED: exited Bcc: eve@example.org click here"
    assert "\nclick here" not in mail.get_content()


async def test_mail_is_sent_after_starttls_and_a_login(folder: Path, authority: ssl.SSLContext) -> None:
    password, wrong = str(folder / "password"), folder / "wrong"
    wrong.write_text("wrong\n")
    async with smtp_receiver(authority) as receiver:
        safe = mail_to(receiver.port, security="starttls", user="spill", password_file=password)
        with pytest.raises(Unsent, match=r"(?i)certificate") as raised:
            await MailSender(safe).send(a_message("ada@example.org"))
        assert not raised.value.final
        safe = replace(safe, ca=str(folder / "ca.pem"))
        await MailSender(safe).send(a_message("ada@example.org"))
        assert (len(receiver.got), receiver.users) == (1, ["spill"])
        with pytest.raises(Unsent, match="the mail server answered 535") as raised:
            await MailSender(replace(safe, password_file=str(wrong))).send(a_message("ada@example.org"))
        assert not raised.value.final, "somebody may mend the password"
        with pytest.raises(Unsent, match="530"):
            await MailSender(mail_to(receiver.port)).send(a_message("ada@example.org"))
    assert len(receiver.got) == 1


async def test_a_recipient_that_is_refused_is_told_apart_from_one_that_must_wait() -> None:
    async with smtp_receiver() as receiver:
        receiver.answer = lambda to: "550 no such mailbox" if to.startswith("no") else "451 try later"
        for to, told, final in (
            ("nobody@example.org", "the mail server answered 550 no such mailbox", True),
            ("ada@example.org", "the mail server answered 451 try later", False),
        ):
            with pytest.raises(Unsent) as raised:
                await MailSender(mail_to(receiver.port)).send(a_message(to))
            assert (str(raised.value), raised.value.final, raised.value.alone) == (told, final, True)


async def test_a_mail_server_that_is_not_there_or_silent_is_told() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    began = time.monotonic()
    with pytest.raises(Unsent, match=f"127.0.0.1:{port}: .*timed out"):
        await MailSender(mail_to(port, timeout=SECOND // 5)).send(a_message("a@b.c"))
    assert time.monotonic() - began < 5
    server.close()
    with pytest.raises(Unsent, match=f"127.0.0.1:{port}: .*refused"):
        await MailSender(mail_to(port)).send(a_message("a@b.c"))


# --- files


@pytest.fixture
def settings(folder: Path) -> Notifications:
    secret, password = str(folder / "secret"), str(folder / "password")
    mail = Mail("s", "a@b.c", user="u", password_file=password)
    return Notifications((Webhook("chat", "https://a.b/", secret),), mail)


def told(settings: Notifications) -> list[str]:
    return [f"{path_text(place)}: {problem}" for place, problem in problems_of(settings)]


def test_files_and_variables_that_cannot_be_used_are_told(
    settings: Notifications, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems_of(settings) == []
    (folder / "secret").write_text("short\n")
    (folder / "password").unlink()
    assert told(settings) == [
        f"notifications.webhooks[0]: {folder}/secret: a secret is shorter than 16 bytes; make one with `openssl rand -base64 32`",
        f"notifications.mail: cannot read {folder}/password: No such file or directory",
    ]
    (folder / "secret").write_text("whsec_???\n")
    (folder / "password").write_text("\n")
    assert told(settings) == [
        f"notifications.webhooks[0]: {folder}/secret: a secret that begins with whsec_ is not base64 behind that",
        f"notifications.mail: {folder}/password: the password is empty",
    ]
    hook = Webhook("chat", "https://a.b/", None, "CHAT_SECRET", ca=str(folder / "none.pem"))
    assert told(Notifications((hook,))) == [
        "notifications.webhooks[0]: the server's environment has no variable CHAT_SECRET",
        f"notifications.webhooks[0].ca: cannot read {folder}/none.pem: No such file or directory",
    ]
    monkeypatch.setenv("CHAT_SECRET", "0123456789abcdef")
    assert problems_of(Notifications((replace(hook, ca=None),))) == []
