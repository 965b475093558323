"""One thread; the newest question of a kind wins; nothing that is asked can end it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwork.explorer import questions as q
from headwork.explorer import worker as module
from headwork.explorer.answers import Part
from headwork.explorer.questions import About, Input, Progress, Question, RefusedError
from headwork.explorer.worker import Worker


def read(text: str) -> q.Read:
    return q.Read(About(Input(text=text)))


class Slow:
    """Answers with the text, after steps that look at whether the answer is still wanted."""

    def __init__(self) -> None:
        self.may_go, self.begun, self.threads = threading.Event(), threading.Event(), set[str]()

    def __call__(self, question: Question, progress: Progress) -> Iterator[Part]:
        assert isinstance(question, q.Read)
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        text = question.about.input.text or ""
        if text == "boom":
            raise ZeroDivisionError("one by zero")
        if text == "no":
            raise RefusedError("I will not.")
        if text == "full":
            raise MemoryError
        while text.startswith("slow") and not self.may_go.wait(0.002):
            progress()
        yield Part({"kind": "part", "text": text})


@pytest.fixture
def slow() -> Iterator[tuple[Slow, Worker]]:
    answer = Slow()
    worker = Worker(answer)
    yield answer, worker
    worker.close()
    assert not worker.thread.is_alive()


def kinds(parts: Iterator[Part]) -> list[str]:
    return [part.header["kind"] for part in parts]


def test_a_newer_question_ends_the_one_that_runs(slow: tuple[Slow, Worker]) -> None:
    answer, worker = slow
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: kinds(worker.ask("me", "reading", 1, read("slow"))))
        assert answer.begun.wait(60)
        assert kinds(worker.ask("me", "reading", 2, read("new"))) == ["part", "done"]
        assert first.result(60) == ["superseded"]


def test_other_places_and_visitors_wait_their_turn(slow: tuple[Slow, Worker]) -> None:
    answer, worker = slow
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(lambda: kinds(worker.ask("me", "reading", 1, read("slow"))))
        assert answer.begun.wait(60)
        others = [pool.submit(lambda who=who: kinds(worker.ask(*who, read("x")))) for who in (("me", "map", 2), ("you", "reading", 3))]  # fmt: skip
        time.sleep(0.02)
        answer.may_go.set()
        assert [each.result(60) for each in (first, *others)] == [["part", "done"]] * 3


def test_an_older_question_that_comes_late_is_not_computed(slow: tuple[Slow, Worker]) -> None:
    answer, worker = slow
    with ThreadPoolExecutor(2) as pool:
        newer = pool.submit(lambda: kinds(worker.ask("me", "reading", 9, read("slow new"))))
        assert answer.begun.wait(60)
        late = pool.submit(lambda: kinds(worker.ask("me", "reading", 8, read("old"))))
        time.sleep(0.02)
        answer.may_go.set()
        assert newer.result(60) == ["part", "done"]
        assert late.result(60) == ["superseded"]


def test_a_thousand_superseded_questions_leave_one_thread_and_nothing_else(slow: tuple[Slow, Worker]) -> None:
    answer, worker = slow
    before = threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(lambda i=i: kinds(worker.ask("me", "reading", i, read(f"slow {i}")))) for i in range(1000)]
        while not worker.running or worker.running.number < 990:
            time.sleep(0.002)
            if all(each.done() or each.running() for each in asked) and worker.running and not worker.waiting:
                break
        answer.may_go.set()
        found = [each.result(60) for each in asked]
    assert found.count(["superseded"]) >= 980
    assert found[-1] == ["part", "done"]
    assert worker.n_answered <= 20
    assert answer.threads == {"headwork explorer"}
    assert not worker.waiting
    assert threading.active_count() <= before


def test_nothing_ends_the_thread(slow: tuple[Slow, Worker]) -> None:
    _, worker = slow
    for text, sentence in (("boom", "ZeroDivisionError: one by zero"), ("no", "I will not."), ("full", "memory")):
        [found] = worker.ask("me", "reading", 1, read(text))
        assert found.header["kind"] == "refused"
        assert sentence in found.header["sentence"]
    assert kinds(worker.ask("me", "reading", 2, read("fine"))) == ["part", "done"]


def test_who_goes_away_is_not_computed_for(slow: tuple[Slow, Worker]) -> None:
    _answer, worker = slow
    parts = worker.ask("me", "reading", 1, read("quick"))
    assert next(parts).header["kind"] == "part"
    parts.close()  # type: ignore[attr-defined]
    assert kinds(worker.ask("me", "map", 1, read("x"))) == ["part", "done"]


def test_too_many_wait_and_too_long(slow: tuple[Slow, Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    answer, worker = slow
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    with ThreadPoolExecutor(3) as pool:
        ask = lambda i: pool.submit(lambda: kinds(worker.ask("me", str(i), i, read("slow"))))  # noqa: E731
        busy = [ask(0)]
        assert answer.begun.wait(60)  # only now: three at once would be one too many
        busy += [ask(1), ask(2)]
        while len(worker.waiting) < 2:
            time.sleep(0.001)
        [found] = worker.ask("me", "other", 9, read("x"))
        assert "2 questions are waiting" in found.header["sentence"]
        monkeypatch.setattr(module, "SECONDS_FOR_A_PART", -1.0)
        assert {each.result(60)[0] for each in busy} == {"refused"}
