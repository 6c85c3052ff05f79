"""Sending messages: again after pauses, each channel by itself, and given up after a day."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from spillover.control.controllers import delivering as module
from spillover.control.controllers.delivering import Delivering
from spillover.control.notifications.settings import Settings
from spillover.model.notifications import Mail, Notifications, Webhook
from spillover.model.units import DAY, HOUR, SECOND
from spillover.ports.outbox import Message
from spillover.ports.sender import Sender, Unsent
from spillover.stores.memory import MemoryOutbox, Shelf
from spillover.wire.notices import Notice, encode_notice
from tests.support.inside import Inside
from tests.support.waiting import turn, until

CHAT = Webhook("chat", "https://chat.example.org/", "secret", projects=None)
SETTINGS = Notifications((CHAT,), Mail("smtp.example.org", "spill@example.org"))


class HandSender:
    """Takes messages, or fails as a test says."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.tried: list[str] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        """Set unless it is slow."""
        self.open.set()

    async def send(self, message: Message) -> None:
        self.tried.append(message.id)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.got.append(message.id)


class Post:
    """The controller with hand-made senders, and pauses that a test ends by its clock."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.settings = Settings(SETTINGS)
        self.senders = {"mail": HandSender(), "webhook/chat": HandSender()}
        self.delivering = Delivering(control.loop, control.store.outbox, self.settings, self._sender)

    def _sender(self, channel: str) -> Sender | None:
        return self.senders.get(channel)

    async def put(
        self, *names: str, channel: str = "webhook/chat", age: float = 0, to: str = "chat", due: int = 0
    ) -> None:
        at = self.control.loop.now() - round(age)
        body = encode_notice(Notice("x", "end", "2027-01-01T00:00:00Z", "job a ended"))
        found = [Message(name, channel, to, "", at, body, due or at) for name in names]
        await self.control.store.outbox.add(found, self.control.loop.epoch)
        self.delivering.look()

    def left(self, *, failed: bool | None = None) -> list[Message]:
        """Return the messages that are not sent, by id."""
        found = self.shelf.outbox.values()
        return sorted([each for each in found if failed in {None, each.failed}], key=lambda each: each.id)

    @property
    def shelf(self) -> Shelf:
        outbox = self.control.store.outbox
        assert isinstance(outbox, MemoryOutbox)
        return outbox._shelf

    async def tried(self, message: str, tries: int) -> Message:
        """Wait until a message was tried so often."""
        found = self.shelf.outbox
        await until(lambda: found[message].tries >= tries, f"{tries} tries")
        return found[message]


@pytest.fixture
async def post(control: Inside, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Post]:
    monkeypatch.setattr(module, "LOOK", 0.02)
    async with running(Post(control)) as post:
        yield post


@asynccontextmanager
async def running(post: Post) -> AsyncIterator[Post]:
    task = asyncio.create_task(post.delivering.run())
    await turn()
    try:
        yield post
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_messages_are_sent_in_order_and_removed(post: Post) -> None:
    await post.put("a", "b", "c")
    await until(lambda: len(post.senders["webhook/chat"].got) == 3, "three messages")
    assert post.senders["webhook/chat"].got == ["a", "b", "c"]
    await until(lambda: not post.left(), "the last one to be removed")
    assert post.delivering.sent == {"webhook/chat": 3}


async def test_a_message_that_is_not_taken_is_tried_again_after_a_pause(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.01, 60))
    sender = post.senders["webhook/chat"]
    sender.error = Unsent("answered with status 503\nand more")
    await post.put("a", "b")
    message = await post.tried("a", 1)
    assert message.error == "answered with status 503 and more"
    assert message.due == post.control.loop.now() + round(0.01 * SECOND)
    assert (await post.control.store.outbox.counts())[0].waiting == 2
    assert not message.failed
    post.control.clock.pass_by(120)
    await post.control.submit("later")
    await post.tried("a", 2)
    sender.error = None
    post.delivering.hurry()
    await until(lambda: len(sender.got) == 2, "both messages")
    assert (sender.got, sender.tried) == (["a", "b"], ["a", "a", "a", "b"])


async def test_messages_arrive_in_their_order_after_an_outage(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one must wait longer after its try than those behind it, which were not tried."""
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01))
    sender = post.senders["webhook/chat"]
    sender.error = Unsent("no answer", after=60)
    monkeypatch.setattr(module, "LONGEST_ASKED", 0.05)
    await post.put("z-cluster_failed", age=2)
    await post.tried("z-cluster_failed", 1)
    await post.put("a-cluster_ready", age=1)
    sender.error = None
    await asyncio.sleep(0.1)
    assert sender.got == [], "the clock stands still, so the first one is not due"
    post.control.clock.pass_by(1)
    await post.control.submit("later")
    await until(lambda: len(sender.got) == 2, "both messages")
    assert sender.got == ["z-cluster_failed", "a-cluster_ready"]


async def test_a_mailbox_that_is_full_for_now_delays_no_other(post: Post) -> None:
    """What is written to it later waits behind the first one."""
    sender = post.senders["mail"]
    sender.error = Unsent("mailbox full", alone=True)
    await post.put("z", channel="mail", to="ada@example.org", age=3)
    await post.tried("z", 1)
    sender.error = None
    await post.put("y", channel="mail", to="ada@example.org", age=2)
    await post.put("x", channel="mail", to="bob@example.org", age=1)
    await until(lambda: sender.got == ["x"], "the other mailbox")
    post.control.clock.pass_by(5)
    await post.control.submit("later")
    await until(lambda: len(sender.got) == 3, "all messages")
    assert sender.got == ["x", "z", "y"]


async def test_a_try_that_somebody_asks_for_waits_for_no_pause(post: Post) -> None:
    """Not for that of an older message of its channel either, as after a restart."""
    await post.put("b", age=9, due=post.control.loop.now() + HOUR)
    await post.put("a")
    await turn()
    assert post.senders["webhook/chat"].tried == []
    post.delivering.hurry()
    await until(lambda: post.senders["webhook/chat"].got == ["b", "a"], "both messages")


async def test_a_slow_receiver_delays_no_other_channel(post: Post) -> None:
    post.senders["webhook/chat"].open.clear()
    await post.put("a", "b")
    await until(lambda: post.senders["webhook/chat"].tried, "a try")
    await post.put("m", channel="mail")
    await until(lambda: post.senders["mail"].got == ["m"], "mail")
    assert post.senders["webhook/chat"].got == []


async def test_what_a_receiver_never_takes_fails_at_once_and_others_go_on(post: Post) -> None:
    sender = post.senders["mail"]
    sender.error = Unsent("no such mailbox", final=True, alone=True)
    await post.put("a", channel="mail")
    message = await post.tried("a", 1)
    assert (message.failed, message.error) == (True, "no such mailbox")
    sender.error = None
    await post.put("b", channel="mail")
    await until(lambda: sender.got == ["b"], "the next message")
    assert [each.id for each in post.left()] == ["a"]


async def test_after_a_day_all_old_messages_of_a_dead_receiver_have_failed(post: Post) -> None:
    sender = post.senders["webhook/chat"]
    sender.error = Unsent("no answer")
    await post.put("a", "b", age=DAY + HOUR)
    await post.put("c", age=HOUR)
    await post.tried("a", 1)
    await until(lambda: len(post.left(failed=True)) == 2, "two failed ones")
    assert [(each.id, each.tries) for each in post.left(failed=True)] == [("a", 1), ("b", 0)]
    assert [each.id for each in post.left(failed=False)] == ["c"]


async def test_messages_of_a_channel_that_is_gone_fail(post: Post) -> None:
    post.settings.now = replace(SETTINGS, webhooks=())
    del post.senders["webhook/chat"]
    await post.put("a")
    message = await post.tried("a", 1)
    assert (message.failed, message.error) == (True, "webhook chat is not configured any more")


async def test_an_error_of_ours_costs_one_message(post: Post) -> None:
    sender = post.senders["mail"]
    sender.error = RuntimeError("our mistake")
    await post.put("a", channel="mail")
    message = await post.tried("a", 1)
    assert (message.failed, message.error) == (True, "RuntimeError: our mistake")


async def test_nothing_is_sent_by_a_server_that_does_not_lead(post: Post) -> None:
    post.control.loop.hold("another server leads")
    await post.put("a")
    await asyncio.sleep(0.1)
    assert post.senders["webhook/chat"].tried == []
    assert [each.id for each in post.left()] == ["a"]


async def test_messages_of_an_earlier_server_are_sent(control: Inside) -> None:
    post = Post(control)
    await post.put("a")
    async with running(post):
        await until(lambda: post.senders["webhook/chat"].got == ["a"], "the message")
