"""A thread of the nursery: what it was given, what it gives back, and when it tells."""

import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from spillover.agent.nursery.frames import LARGEST, pack, unpack
from spillover.agent.nursery.spawners import LONGEST, MOST, Spawner
from tests.support.processes import wait_until


class Pair:
    """A hand, and the agent's end of its socket."""

    def __init__(self) -> None:
        self.agent, self.end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.kept_back = 0
        self.hand = Spawner(self.end, self._kept)

    def _kept(self) -> None:
        self.kept_back += 1

    def give(self, *keys: int) -> None:
        self.agent.send(pack([(key,) for key in keys]))

    def told(self) -> list[Any]:
        out: list[Any] = []
        while True:
            try:
                out.append(unpack(self.agent.recv(LARGEST, socket.MSG_DONTWAIT)))
            except BlockingIOError:
                return out


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.agent.close()
    pair.hand.close()


def test_tasks_are_taken_in_order_from_one_message_and_the_next(pair: Pair) -> None:
    pair.give(1, 2)
    pair.give(3)
    assert [pair.hand.take() for _ in range(3)] == [(1,), (2,), (3,)]


def test_a_thread_without_a_task_waits_for_one(pair: Pair) -> None:
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(pair.hand.take()))
    thread.start()
    pair.give(7)
    thread.join()
    assert taken == [(7,)]


def test_there_is_nothing_to_take_once_the_agent_is_gone(pair: Pair) -> None:
    pair.give(1)
    pair.agent.close()
    assert pair.hand.take() == (1,)
    assert pair.hand.take() is None


def test_ends_are_kept_back_while_there_is_more_to_do_and_told_together(pair: Pair) -> None:
    pair.give(1, 2, 3)
    for key in (1, 2):
        pair.hand.take()
        pair.hand.ended((key, ""))
    pair.hand.take()
    assert pair.kept_back
    told = pair.told()
    pair.hand.ended((3, ""))
    assert pair.hand.tell()
    assert [key for message in told + pair.told() for key, _ in message] == [1, 2, 3]


def test_a_thread_that_has_nothing_to_do_tells_at_once(pair: Pair) -> None:
    pair.give(1)
    pair.hand.take()
    pair.hand.ended((1, ""))
    waiting = threading.Thread(target=pair.hand.take)
    waiting.start()
    assert unpack(pair.agent.recv(LARGEST)) == [(1, "")]
    pair.agent.shutdown(socket.SHUT_WR)
    waiting.join()


def test_an_end_with_something_to_say_is_told_at_once_and_not_at_length(pair: Pair) -> None:
    pair.hand.ended((1, "x" * 100_000))
    assert pair.told() == [[(1, "x" * LONGEST)]]


def test_only_so_many_ends_are_kept_back(pair: Pair) -> None:
    for key in range(MOST):
        pair.hand.ended((key, ""))
    assert [key for message in pair.told() for key, _ in message] == list(range(MOST))


def test_what_has_not_begun_can_be_given_back_wherever_it_is(pair: Pair) -> None:
    pair.give(1, 2, 3)
    assert pair.hand.take() == (1,)
    pair.give(4, 5)
    assert pair.hand.give_back([1, 4, 2, 9]) == [2, 4], "not what has begun, nor what was never given"
    assert [pair.hand.take() for _ in range(2)] == [(3,), (5,)]


def test_what_others_receive_while_a_thread_is_about_to_wait_is_begun(pair: Pair) -> None:
    tell = pair.hand.tell

    def in_between(*, wait: bool = True) -> bool:
        """What may happen once the thread has found nothing, and does not wait yet."""
        pair.give(1, 2)
        assert pair.hand.give_back([2]) == [2]
        return tell(wait=wait)

    pair.hand.tell = in_between  # type: ignore[method-assign]
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(pair.hand.take()), daemon=True)
    thread.start()
    thread.join(10)
    assert taken == [(1,)]


def test_every_task_is_begun_or_given_back_and_never_both(pair: Pair) -> None:
    begun: list[int] = []
    back: list[int] = []

    def work() -> None:
        while (task := pair.hand.take()) is not None:
            begun.append(task[0])

    def all_there(count: int) -> bool:
        return len(begun) + len(back) == count

    thread = threading.Thread(target=work)
    thread.start()
    for key in range(0, 20_000, 2):
        pair.give(key, key + 1)
        back += pair.hand.give_back([key + 1])
        if key % 100 == 0:
            wait_until(partial(all_there, key + 2), f"the end of task {key}", 10, 0.001)
    pair.agent.shutdown(socket.SHUT_WR)
    thread.join()
    assert sorted(begun + back) == list(range(20_000))


def test_telling_does_not_wait_for_an_agent_that_does_not_listen(pair: Pair) -> None:
    end = (*range(2000), "")
    while pair.hand.tell(wait=False):
        pair.hand._ends.append(end)
    assert pair.told()
    assert pair.hand.tell(wait=False)
    assert pair.told() == [[end]]
