"""The queue before the model is fair and bounded, and equal requests are computed once."""

import asyncio
import threading

import pytest

from lorgnette.serve.work import AnswerCache, Busy, Desk, sender


def test_requests_are_served_in_the_order_of_their_arrival():
    order, hold = [], threading.Event()

    async def crowd():
        desk = Desk()
        first = asyncio.create_task(desk.do(hold.wait))
        await asyncio.sleep(0)
        tasks = [asyncio.create_task(desk.do(lambda n=n: order.append(n))) for n in range(5)]
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(first, *tasks)

    asyncio.run(crowd())
    assert order == list(range(5))


def test_an_address_has_a_limited_number_of_places():
    desk = Desk(most=2)
    with desk.place("10.0.0.1"), desk.place("10.0.0.1"):
        with pytest.raises(Busy, match="2 requests from your address are waiting already"), desk.place("10.0.0.1"):
            pass
        with desk.place("10.0.0.2"):
            assert desk.waiting == {"10.0.0.1": 2, "10.0.0.2": 1}
    assert not desk.waiting


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("", "10.0.0.1", False),
    ],
)
def test_an_ipv6_user_is_counted_by_network(one, other, same):
    assert (sender(one) == sender(other)) == same


def test_work_that_has_begun_keeps_its_turn_when_its_client_leaves():
    """Otherwise a client that connects and leaves again and again would pile up work behind the thread."""
    order, begun, hold = [], threading.Event(), threading.Event()

    async def crowd():
        desk = Desk()
        leaving = asyncio.create_task(desk.do(lambda: (begun.set(), hold.wait())))
        await asyncio.sleep(0)
        begun.wait()
        waiting = asyncio.create_task(desk.do(lambda: order.append("waited")))
        leaving.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert desk.lock.locked()
        assert desk.thread.tasks.empty()
        hold.set()
        await waiting

    asyncio.run(crowd())
    assert order == ["waited"]


def test_who_leaves_is_taken_out_of_the_queue():
    done, hold = [], threading.Event()

    async def crowd():
        desk = Desk()
        running = asyncio.create_task(desk.do(hold.wait))
        await asyncio.sleep(0)
        leaving = asyncio.create_task(desk.do(lambda: done.append("left")))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        hold.set()
        await running
        assert await desk.do(int) == 0

    asyncio.run(crowd())
    assert done == []


def test_what_goes_wrong_reaches_who_asked_and_the_next_is_served():
    async def crowd():
        desk = Desk()
        with pytest.raises(ZeroDivisionError):
            await desk.do(lambda: 1 / 0)
        assert await desk.do(int) == 0

    asyncio.run(crowd())


class Maker:
    """Makes one answer when it is let, and counts."""

    def __init__(self) -> None:
        self.made, self.stopped, self.let = 0, 0, asyncio.Event()

    async def __call__(self) -> bytes:
        self.made += 1
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return b"answer"


def test_the_same_question_is_worked_on_once():
    async def crowd():
        answers, make = AnswerCache(), Maker()
        asked = [asyncio.create_task(answers.get("question", make)) for _ in range(20)]
        await asyncio.sleep(0)
        asked[0].cancel()  # the first one leaves: the others still want it
        await asyncio.sleep(0)
        make.let.set()
        assert await asyncio.gather(*asked[1:]) == [b"answer"] * 19
        assert await answers.get("question", make) == b"answer"
        assert (make.made, make.stopped) == (1, 0)
        answers.forget(lambda key: key != "question")
        await answers.get("question", make)
        assert make.made == 2

    asyncio.run(crowd())


def test_work_that_nobody_waits_for_is_stopped():
    async def crowd():
        answers, make = AnswerCache(), Maker()
        asked = [asyncio.create_task(answers.get("question", make)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await asyncio.sleep(0)
        assert (make.made, make.stopped) == (1, 1)
        assert not answers.coming
        assert not answers.known

    asyncio.run(crowd())


def test_failures_are_not_kept():
    async def crowd():
        answers, failing = AnswerCache(), True

        async def make() -> bytes:
            if failing:
                raise Busy("later")
            return b"answer"

        with pytest.raises(Busy):
            await answers.get("question", make)
        failing = False
        assert await answers.get("question", make) == b"answer"

    asyncio.run(crowd())


def test_the_cache_is_bounded_by_bytes():
    async def crowd():
        answers = AnswerCache(most_bytes=25)
        for name in ("one", "two", "three"):
            await answers.get(name, lambda: asyncio.sleep(0, b"0123456789"))
            await answers.get("one", lambda: asyncio.sleep(0, b"again 6789"))
        assert list(answers.known) == ["three", "one"]

    asyncio.run(crowd())
