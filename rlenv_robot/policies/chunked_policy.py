"""Execute the chunks of a slow predictor in time, one action a frame, while the next chunk is being predicted."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import NamedTuple

import numpy as np

from hal import ConnectionLost, DeadlineExceeded, Spec
from rlenv_robot.action_limiter import ActionLimiter
from rlenv_robot.chunk_queue import ChunkCounts, ChunkQueue, hold_limit
from rlenv_robot.policies.chunks import ChunkContext, ChunkPredictor

__all__ = ["ChunkedPolicy", "SilentPolicy"]

Chunk = Mapping[str, np.ndarray]

_RECENT = 10
"""Number of answers whose largest delay is expected of the next one."""
_HOLD_FRAMES = 60
"""Default number of frames for which a world of unknown rate is held."""
_WAIT_SHARE = 0.4
"""Share of a period for which a frame without an action waits for the pending answer, before the robot is held."""
_RETRY_S = 0.05
"""Pause before a fresh request where nothing moves meanwhile, seconds."""
_JOIN_S = 5.0
"""Longest wait for the thread at `ChunkedPolicy.close`, seconds."""


class SilentPolicy(DeadlineExceeded):
    """A predictor gave no chunk within its deadline, although the robot was held for it."""


class _Request(NamedTuple):
    frame: int  # of its observation
    answer: Future[Chunk]


class ChunkedPolicy:
    """A `rlenv_robot.policies.policy.SavedPolicy` that executes the chunks of a `ChunkPredictor` by frame numbers.

    Call `act` once a frame, and `reset` at the beginning of an episode, as `rlenv_robot.training.rollout.run_episode`
    does. The first chunk of an episode is awaited before the first step. From then on the next request goes out when at
    most the share ``refill`` of a chunk is left, or as many actions as frames passed during one of the last requests.
    `rlenv_robot.chunk_queue.ChunkQueue` merges the answer. Where no action is due, the robot is held. A request that
    failed by its deadline or a lost connection is followed by a fresh one, with the newest observation. An answer to a
    request of an earlier episode is discarded.

    Args:
        predictor: predicts the chunks; this object owns it from now on.
        limiter: limits the change at seams, and gives the action that holds the robot
            (`rlenv_robot.action_limiter.limiter_of`). Without one, `act` waits for the answer instead of holding.
        delay: None for real time: a thread predicts while frames go on. A number of frames for a simulation that is not
            in real time: the prediction from frame n takes effect at frame n + delay, whatever time it took, so that
            the same seed gives the same episode on every machine.
        refill: share of the last chunk's length, 0 to 1; the next request goes out when at most that much is left.
            LeRobot calls it ``chunk_size_threshold``.
        blend: number of frames over which two chunks are blended.
        ahead: number of frames by which commands go ahead of the readings on a slow network (`rlenv_robot.make`). The
            action of a step is executed as many frames later, so that it is taken from further back in the chunk.
        warm_up_s: longest wait for the first chunk of an episode, seconds.
        hold_frames: most successive frames in which the robot is held; by default `rlenv_robot.chunk_queue.HOLD_S`.

    Attributes:
        predictor: the predictor.
        totals: the counts of all episodes since the policy was made, up to the present frame's.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        predictor: ChunkPredictor,
        limiter: ActionLimiter | None = None,
        *,
        delay: int | None = None,
        refill: float = 0.5,
        blend: int = 0,
        ahead: int = 0,
        warm_up_s: float = 60.0,
        hold_frames: int | None = None,
    ) -> None:
        if delay is not None and delay < 0:
            raise ValueError(f"delay is {delay}, it must be a number of frames, at least 0, or None for real time")
        if not 0.0 <= refill <= 1.0:
            raise ValueError(f"refill is {refill}, it must be a share of a chunk, 0 to 1")
        if ahead < 0:
            raise ValueError(f"ahead is {ahead}, it must be a number of frames, at least 0")
        if not warm_up_s > 0:
            raise ValueError(f"warm_up_s is {warm_up_s}, it must be above 0")
        if hold_frames is None:
            hold_frames = _HOLD_FRAMES if limiter is None else hold_limit(limiter.robot)
        if hold_frames < 1:
            raise ValueError(f"hold_frames is {hold_frames}, it must be at least 1")
        self.predictor = predictor
        self._limiter, self._delay, self._refill, self._blend = limiter, delay, refill, blend
        self._ahead, self._warm_up_s, self._hold_frames = ahead, warm_up_s, hold_frames
        self._under_way: deque[Chunk] = deque(maxlen=ahead)  # the actions of coming frames that were sent already
        self._queue = ChunkQueue(Spec("unknown"), limiter, blend)
        self._worker: _Worker | None = None
        self._delays: deque[int] = deque(maxlen=_RECENT)
        self._earlier = ChunkCounts()
        self._begin()

    def _begin(self) -> None:
        self._frame = 0
        self._request: _Request | None = None
        self._failure: Exception | None = None

    # -- policy ------------------------------------------------------------------------------------------

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs that the predictor can't use; see `ChunkPredictor.check`. Call it before `act`."""
        self.predictor.check(observation, action)
        self._queue = ChunkQueue(action, self._limiter, self._blend)

    def reset(self) -> None:
        """Discard the actions of the last episode, and the answer to its last request, which may still come."""
        self._earlier.add(self._queue.counts)
        self._queue.clear()
        self._under_way.clear()
        if self._request is not None:
            self._request.answer.cancel()
        self._begin()

    @property
    def totals(self) -> ChunkCounts:
        """The counts of all episodes, up to the present frame."""
        totals = ChunkCounts()
        totals.add(self._earlier)
        totals.add(self._queue.counts)
        return totals

    @property
    def answers(self) -> int:
        """Frame number of the observation that the newest action answers; -1 if the robot was held."""
        return self._queue.answers

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action of the present frame.

        Args:
            observation: one observation, without leading axes; its number in the episode is the number of calls before.

        Raises:
            SilentPolicy: the first chunk did not come within ``warm_up_s``, or the robot was held for
                ``hold_frames`` frames.
            IllegalAction: the chunk breaks the action's spec.
            RobotError: the predictor's server refused the observation, or could not be reached for the first chunk.
        """
        frame = self._frame
        self._frame += 1
        if frame == 0:
            self._first(observation)
        else:
            self._collect(frame)
        if self._request is None and self._queue.left(self._executed_in(frame)) <= self._low_mark:
            self._ask(observation, frame)
            if self._delay == 0:
                self._collect(frame)
        if self._delay is None and not self._queue.left(self._executed_in(frame)):
            self._wait_briefly(frame)
        action = self._queue.next(self._executed_in(frame))
        if action is None:
            action = self._hold(observation, frame)
        self._under_way.append(action)
        return action

    def _wait_briefly(self, frame: int) -> None:
        """Wait within the frame for the pending answer: a fast policy of single actions is always asked anew."""
        if self._request is not None and self._limiter is not None:
            wait([self._request.answer], _WAIT_SHARE * self._limiter.robot.period_s)
            self._collect(frame)

    def _executed_in(self, frame: int) -> int:
        """Return the frame in which the action of a step is executed."""
        return frame + 1 + self._ahead

    @property
    def _low_mark(self) -> float:
        """Number of queued actions at which the next request goes out."""
        return max(self._refill * self._queue.length, self._expected_delay)

    def _hold(self, observation: Mapping[str, np.ndarray], frame: int) -> dict[str, np.ndarray]:
        if self._limiter is None:
            return self._await_action(observation, frame)
        action = self._queue.hold()
        assert action is not None  # the first chunk was awaited, so there was an action before
        if self._queue.held > self._hold_frames:
            seconds = self._hold_frames * self._limiter.robot.period_s
            raise self._silent(f"in {self._hold_frames} frames, {seconds:g} s, for which the robot was held", seconds)
        return action

    def _silent(self, when: str, seconds: float) -> SilentPolicy:
        why = self._failure or "its answer is still awaited"
        message = f"the policy {type(self.predictor).__name__} gave no action {when}: {why}"
        return SilentPolicy("", seconds, message=message)

    def _first(self, observation: Mapping[str, np.ndarray]) -> None:
        """Wait for the first chunk of an episode, before any step."""
        deadline = time.monotonic() + self._warm_up_s
        while not self._queue.counts.chunks:
            self._ask(observation, 0, begins=True)
            self._await_answer(0, deadline)
            if isinstance(self._failure, ConnectionLost):
                raise self._failure

    def _await_action(self, observation: Mapping[str, np.ndarray], frame: int) -> dict[str, np.ndarray]:
        """Wait for the next action, in a world without a robot to hold."""
        deadline = time.monotonic() + self._warm_up_s
        while True:
            if self._request is None:
                self._ask(observation, frame)
            self._await_answer(frame, deadline)
            action = self._queue.next(self._executed_in(frame))
            if action is not None:
                return action

    def _await_answer(self, frame: int, deadline: float) -> None:
        """Wait for the answer to the pending request, and merge it; a failure leaves no request pending."""
        assert self._request is not None  # it was asked for before
        try:
            self._request.answer.exception(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            self._request.answer.cancel()
            self._request = None
            raise self._silent(f"within {self._warm_up_s:g} s", self._warm_up_s) from None
        self._collect(frame, due=True)
        if self._failure is not None:
            if time.monotonic() + _RETRY_S >= deadline:
                raise self._silent(f"within {self._warm_up_s:g} s", self._warm_up_s) from self._failure
            time.sleep(_RETRY_S)

    # -- requests ----------------------------------------------------------------------------------------

    def _ask(self, observation: Mapping[str, np.ndarray], frame: int, begins: bool = False) -> None:
        """Send a request with a copy of the observation.

        Args:
            observation: the newest observation.
            frame: its number in the episode.
            begins: whether the predictor begins an episode.
        """
        kept = {name: np.array(value) for name, value in observation.items()}
        queued = self._queue.queued(self._executed_in(frame))
        if frame < self._ahead:  # the robot is still held
            queued = {name: value[:0] for name, value in queued.items()}
        elif self._under_way:
            rows = list(self._under_way)
            queued = {name: np.concatenate([[row[name] for row in rows], value]) for name, value in queued.items()}
        context = ChunkContext(frame, queued, self._expected_delay + self._ahead)

        def predict() -> Chunk:
            if begins:
                self.predictor.reset()
            return self.predictor.predict(kept, context)

        self._request = _Request(frame, self._run(predict))

    @property
    def _expected_delay(self) -> int:
        return max(self._delays, default=0) if self._delay is None else self._delay

    def _run(self, predict: Callable[[], Chunk]) -> Future[Chunk]:
        if self._delay is not None:
            answer: Future[Chunk] = Future()
            _fulfil(answer, predict)
            return answer
        if self._worker is None:
            self._worker = _Worker()
        return self._worker.submit(predict)

    def _collect(self, frame: int, due: bool = False) -> None:
        """Merge the answer to the pending request if it is there.

        Args:
            frame: the present frame.
            due: whether a virtual delay counts as passed.
        """
        request = self._request
        if request is None or not request.answer.done():
            return
        if self._delay is not None and not due and frame < request.frame + self._delay:
            return
        self._request = None
        try:
            chunk = request.answer.result()
        except (DeadlineExceeded, ConnectionLost) as error:
            self._failure = error
            return
        self._failure = None
        if request.frame > 0:  # the first one was awaited, so no frame passed
            self._delays.append(frame - request.frame)
        # The first frames of an episode hold the robot, so that what was predicted in them begins after them.
        first_frame = max(request.frame, self._ahead) + 1
        self._queue.merge(chunk, answers=request.frame, first_frame=first_frame, frame=self._executed_in(frame))

    def close(self) -> None:
        """Close the predictor, and end the thread. Safe to call more than once."""
        self.predictor.close()
        if self._worker is not None:
            self._worker.close()


class _Worker:
    """A thread that predicts, one request after another. It is a daemon, so a predictor that hangs keeps no process."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Chunk], Callable[[], Chunk]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="chunk predictor", daemon=True)
        self._thread.start()

    def submit(self, predict: Callable[[], Chunk]) -> Future[Chunk]:
        answer: Future[Chunk] = Future()
        self._jobs.put((answer, predict))
        return answer

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _fulfil(*job)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(_JOIN_S)


def _fulfil(answer: Future[Chunk], predict: Callable[[], Chunk]) -> None:
    """Run a request unless it has been cancelled, and keep its result or its error for the thread that asked."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(predict())
    except BaseException as error:
        answer.set_exception(error)
