"""The queue before the model is fair, bounded, and works on each question once."""

import asyncio
import threading

import pytest

from lorgnette.serve.work import AnswerCache, Busy, Desk


def test_clients_take_turns():
    order, hold = [], threading.Event()

    async def crowd():
        desk = Desk()
        first = asyncio.create_task(desk.do(hold.wait, client="first"))
        await asyncio.sleep(0)
        many = [desk.do(lambda n=n: order.append(f"greedy {n}"), client="greedy") for n in range(5)]
        few = [desk.do(lambda n=n: order.append(f"modest {n}"), client="modest") for n in range(2)]
        tasks = [asyncio.create_task(work) for work in many + few]
        await asyncio.sleep(0)
        assert desk.waiting == 7
        hold.set()
        await asyncio.gather(first, *tasks)
        assert desk.waiting == 0

    asyncio.run(crowd())
    assert order[:4] == ["greedy 0", "modest 0", "greedy 1", "modest 1"]
    assert order[4:] == ["greedy 2", "greedy 3", "greedy 4"]


def test_a_full_queue_refuses_who_has_most_in_it():
    hold = threading.Event()

    async def crowd():
        desk = Desk(most=4)
        running = asyncio.create_task(desk.do(hold.wait, client="first"))
        await asyncio.sleep(0)
        greedy = [asyncio.create_task(desk.do(int, client="greedy")) for _ in range(4)]
        await asyncio.sleep(0)
        modest = asyncio.create_task(desk.do(int, client="modest"))
        with pytest.raises(Busy, match="4 questions are waiting already"):
            await greedy[-1]
        assert desk.waiting == 4
        hold.set()
        assert await asyncio.gather(*greedy[:-1], modest) == [0, 0, 0, 0]
        await running

    asyncio.run(crowd())


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
        assert desk.waiting == 0
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
