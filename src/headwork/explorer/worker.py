"""One thread computes; of each visitor's questions of a kind, the newest wins.

A model must not be changed by two questions at once (heads are switched off by hooks), so there is one thread. A newer
question of the same visitor and place marks the older one, which is dropped if it waits, and stops between layers or
steps if it runs.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator

from headwork.explorer.answers import DONE, SUPERSEDED, Part, refused
from headwork.explorer.questions import Progress, Question, RefusedError, SupersededError

MOST_WAITING = 20
SECONDS_FOR_A_PART = 30.0
Answer = Callable[[Question, Progress], Iterator[Part]]


class Job:
    """A question that somebody waits for."""

    def __init__(self, visitor: str, place: str, number: int, question: Question) -> None:
        self.key, self.number, self.question = (visitor, place), number, question
        self.parts: queue.SimpleQueue[Part] = queue.SimpleQueue()
        self.stale = threading.Event()
        """Nobody wants the answer any more."""
        self.since = time.monotonic()

    def check(self) -> None:
        if self.stale.is_set():
            raise SupersededError
        if time.monotonic() - self.since > SECONDS_FOR_A_PART:
            raise RefusedError(f"This takes more than {SECONDS_FOR_A_PART:.0f} seconds: it was stopped. Try less.")


class Worker:
    """Answers one question after the other, in a thread of its own."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.waiting: list[Job] = []
        self.running: Job | None = None
        self.n_answered = 0
        self._changed = threading.Condition()
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="headwork explorer", daemon=True)
        self.thread.start()

    def ask(self, visitor: str, place: str, number: int, question: Question) -> Iterator[Part]:
        """The parts of the answer as they come; the last is `done`, `superseded` or `refused`."""
        job = Job(visitor, place, number, question)
        if not self._queue(job):
            yield refused(f"{MOST_WAITING} questions are waiting already: ask again in a moment.")
            return
        try:
            while True:
                part = job.parts.get()
                yield part
                if part.header["kind"] != "part":
                    return
        finally:
            job.stale.set()  # whoever asked has gone

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for job in self._jobs():
                job.stale.set()
            self._changed.notify()
        self.thread.join(timeout=5)

    def _queue(self, job: Job) -> bool:
        """Let it wait for its turn, and whatever it makes stale not; False if too many wait."""
        with self._changed:
            for other in self._jobs():
                if other.key == job.key:
                    older = other if other.number <= job.number else job
                    older.stale.set()
            for stale in [each for each in self.waiting if each.stale.is_set()]:
                self.waiting.remove(stale)
                stale.parts.put(SUPERSEDED)
            if len(self.waiting) >= MOST_WAITING:
                return False
            self.waiting.append(job)
            self._changed.notify()
            return True

    def _jobs(self) -> list[Job]:
        return [*self.waiting, *([self.running] if self.running is not None else [])]

    def _run(self) -> None:
        while True:
            with self._changed:
                self.running = None
                while not self.waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    for job in self.waiting:
                        job.parts.put(SUPERSEDED)
                    return
                job = self.running = self.waiting.pop(0)
            job.parts.put(self._answer(job))

    def _answer(self, job: Job) -> Part:
        """Put all parts but the last, and return that; no question may end the thread."""
        job.since = time.monotonic()
        try:
            job.check()
            for part in self.answer(job.question, job.check):
                job.parts.put(part)
                job.since = time.monotonic()
                job.check()
            self.n_answered += 1
        except SupersededError:
            return SUPERSEDED
        except RefusedError as error:
            return refused(str(error))
        except MemoryError:
            return refused("There is not enough memory for this: try a shorter input.")
        except Exception as error:
            return refused(f"This went wrong: {type(error).__name__}: {error}")
        return DONE
