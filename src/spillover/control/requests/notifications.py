"""Lists notifications that were not sent, sends them again, and drops them."""

import secrets

from msgspec.structs import replace

from spillover.control.controllers.delivering import Delivering
from spillover.control.live.loop import Loop
from spillover.control.notifications.receivers import trial_message, unknown_receiver
from spillover.control.notifications.settings import Settings
from spillover.model.notifications import is_address
from spillover.model.units import FOREVER, format_time
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Fenced, StoreError
from spillover.ports.outbox import Message, Outbox, OutboxQuery
from spillover.wire.api import (
    ChannelView,
    FieldProblem,
    NotificationAction,
    NotificationIds,
    NotificationPage,
    NotificationTest,
    NotificationView,
)
from spillover.wire.notices import decode_notice

_SOME = 500
"""Messages to change at a time."""


class NotificationRequests:
    """What admins do with notifications."""

    def __init__(self, loop: Loop, outbox: Outbox, settings: Settings, delivering: Delivering | None) -> None:
        self._loop = loop
        self._outbox = outbox
        self._settings = settings
        self._delivering = delivering
        """What sends them; None if nothing does."""

    async def page(self, failed: bool | None, limit: int, cursor: str | None) -> NotificationPage:
        """Return a page of notifications, newest first."""
        await self._loop.read()
        before: tuple[int, str] | None = None
        if cursor is not None:
            at, _, identity = cursor.partition("-")
            before = min(int(at), FOREVER), identity  # a store holds no more
        found = await self._outbox.page(OutboxQuery(failed, before, limit + 1))
        last = found[limit - 1] if len(found) > limit else None
        return NotificationPage(
            [_view(each) for each in found[:limit]],
            None if last is None else f"{last.at}-{last.id}",
            [ChannelView(each.channel, each.waiting, each.failed) for each in await self._outbox.counts()],
        )

    async def act(self, action: NotificationAction) -> NotificationIds:
        """Send notifications again or drop them, those that are named or all failed ones."""
        if action.failed == bool(action.ids):
            told = "name notifications in `ids`, or write `failed: true` for all failed ones"
            raise CommandError(ErrorKind.INVALID, told, [FieldProblem("ids", told)])
        done: list[str] = []
        for some in await self._selected(action):
            await self._change(action, some)
            done += [each.id for each in some]
        if self._delivering is not None:
            self._delivering.hurry()
        return NotificationIds(done)

    async def test(self, request: NotificationTest, who: str) -> NotificationIds:
        """Send a message that tries whether notifications arrive."""
        to = request.to
        problem = unknown_receiver(self._settings.now, to)
        if "@" in to and not is_address(to):
            problem = f"{to[:80]!r} is not a mail address"
        if problem is not None:
            raise CommandError(ErrorKind.INVALID, problem, [FieldProblem("to", problem)])
        message = trial_message(to, who, self._loop.now(), secrets.token_hex(12))
        try:
            await self._outbox.add([message], self._loop.epoch)
        except StoreError as error:
            raise _unwritable(error) from None
        if self._delivering is not None:
            self._delivering.hurry()
        return NotificationIds([message.id])

    async def _selected(self, action: NotificationAction) -> list[list[Message]]:
        """Return the notifications that are meant, some at a time; raise CommandError if one is not there."""
        if not action.failed:
            ids = list(dict.fromkeys(action.ids))
            found = await self._outbox.some(ids)
            known = {each.id for each in found}
            if strange := [each for each in ids if each not in known]:
                told = f"there is no notification {strange[0][:80]!r} that waits or failed; it may have been sent"
                raise CommandError(ErrorKind.UNKNOWN, told)
            return [found[at : at + _SOME] for at in range(0, len(found), _SOME)]
        parts: list[list[Message]] = []
        before: tuple[int, str] | None = None
        while part := await self._outbox.page(OutboxQuery(failed=True, before=before, limit=_SOME)):
            parts.append(part)
            before = part[-1].at, part[-1].id
        return parts

    async def _change(self, action: NotificationAction, some: list[Message]) -> None:
        try:
            if action.act == "drop":
                await self._outbox.remove([each.id for each in some], self._loop.epoch)
            else:
                now = self._loop.now()
                await self._outbox.change(
                    [replace(each, failed=False, due=min(now, each.at)) for each in some], self._loop.epoch
                )
        except StoreError as error:
            raise _unwritable(error) from None


def _unwritable(error: StoreError) -> CommandError:
    kind = ErrorKind.NOT_LEADER if isinstance(error, Fenced) else ErrorKind.UNAVAILABLE
    return CommandError(kind, f"not accepting changes: {error}", (), 1.0)


def _view(message: Message) -> NotificationView:
    notice = decode_notice(message.body)
    return NotificationView(
        id=message.id,
        to=message.to,
        channel=message.channel,
        kind=notice.kind,
        text=notice.text,
        project=message.project or None,
        at=format_time(message.at),
        state="failed" if message.failed else "waiting",
        tries=message.tries,
        due=format_time(message.due),
        error=message.error or None,
    )
