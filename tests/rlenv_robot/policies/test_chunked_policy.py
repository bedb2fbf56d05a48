from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from hal import ConnectionLost, DeadlineExceeded, Field, IllegalAction, Limits, RobotError, RobotSpec, Spec
from rlenv_robot.action_limiter import ActionLimiter
from rlenv_robot.policies.chunked_policy import ChunkedPolicy
from rlenv_robot.policies.chunks import ChunkContext, ChunkPredictor
from rlenv_robot.policies.policy import EpisodicPolicy

ACTION = Spec("action", (Field("target", (1,), "float64", -1e9, 1e9),))
OBSERVATION = Spec("observation", (Field("frame", (), "int64"),))
ROBOT = RobotSpec(
    "slide", Spec("sensors", (Field("position", (1,), "float64"),)), ACTION, rate_hz=10.0,
    measured_by={"target": "position"},
)  # fmt: skip
LIMITER = ActionLimiter(ROBOT, ACTION, lambda action, _: action, lambda: {"position": np.zeros(1)})

Answer = Callable[[int, ChunkContext], Any]


class Predictor:
    """A predictor whose action for frame n is n: it answers with the frames to which its actions lead."""

    def __init__(self, length: int = 8, answer: Answer | None = None) -> None:
        self.length, self._answer = length, answer
        self.asked: list[tuple[int, ChunkContext]] = []
        self.resets = self.closed = 0

    def check(self, observation: Spec, action: Spec) -> None:
        pass

    def reset(self) -> None:
        self.resets += 1

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> Mapping[str, np.ndarray]:
        frame = int(observation["frame"])
        self.asked.append((frame, context))
        answer = None if self._answer is None else self._answer(frame, context)
        return self.frames(frame) if answer is None else answer

    def frames(self, frame: int) -> dict[str, np.ndarray]:
        return {"target": np.arange(frame + 1, frame + 1 + self.length, dtype=float)[:, None]}

    def close(self) -> None:
        self.closed += 1


def policy(predictor: Predictor, limiter: ActionLimiter | None = LIMITER, **settings: Any) -> ChunkedPolicy:
    made = ChunkedPolicy(predictor, limiter, **settings)
    made.check(OBSERVATION, ACTION)
    return made


def act(chunked: ChunkedPolicy, frame: int) -> float:
    return float(chunked.act({"frame": np.array(frame)})["target"][0])


def test_it_is_an_episodic_policy_over_a_predictor() -> None:
    predictor = Predictor()
    assert isinstance(predictor, ChunkPredictor)
    assert isinstance(policy(predictor), EpisodicPolicy)


# -- virtual delay ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 1, 3, 4])
def test_with_a_delay_that_the_queue_covers_every_frame_gets_its_own_action(delay: int) -> None:
    predictor = Predictor(8)
    chunked = policy(predictor, delay=delay)
    assert [act(chunked, frame) for frame in range(50)] == [frame + 1 for frame in range(50)]
    assert chunked.totals.held == 0
    assert predictor.resets == 1
    assert chunked.totals.passed == delay * (chunked.totals.chunks - 1)
    assert predictor.asked[1][0] == 4  # 4 of 8 are left


@pytest.mark.parametrize(("ahead", "delay"), [(3, 0), (3, 2), (1, 4)])
def test_commands_that_go_ahead_are_the_actions_of_the_frames_in_which_they_are_executed(
    ahead: int, delay: int
) -> None:
    predictor = Predictor(12)
    chunked = policy(predictor, delay=delay, ahead=ahead)
    taken = [act(chunked, frame) for frame in range(40)]
    begun = 6 + delay  # until the second chunk, the first one's: predicted before the robot moved
    assert taken[:begun] == list(range(1, begun + 1))
    assert taken[begun:] == [frame + 1 + ahead for frame in range(begun, 40)]
    assert chunked.totals.held == 0
    asked, context = predictor.asked[1]
    assert asked == 6
    assert context.delay == delay + ahead
    assert context.queued["target"].ravel().tolist() == list(range(7 - ahead, 13)), "those under way come first"


def test_a_fast_policy_of_single_actions_moves_the_robot_in_real_time() -> None:
    """Each answer comes within its own frame, so it must not count as too late for it."""
    chunked = policy(Predictor(1))
    assert [act(chunked, frame) for frame in range(20)] == [frame + 1 for frame in range(20)]
    assert (chunked.totals.held, chunked.totals.passed) == (0, 0)
    chunked.close()


def test_a_negative_number_of_frames_ahead_is_refused() -> None:
    with pytest.raises(ValueError, match="ahead is -1"):
        policy(Predictor(), ahead=-1)


def test_a_prediction_takes_effect_after_its_delay_and_answers_its_frame() -> None:
    chunked = policy(Predictor(8), delay=3, refill=0.5)
    taken = []
    for frame in range(14):
        act(chunked, frame)
        taken.append(chunked.answers)
    assert taken == [0] * 7 + [4] * 4 + [8] * 3  # asked for at 4 and 8


def test_the_context_has_the_left_over_and_the_delay() -> None:
    predictor = Predictor(8)
    chunked = policy(predictor, delay=2)
    for frame in range(6):
        act(chunked, frame)
    first, second = (context for _, context in predictor.asked[:2])
    assert (first.frame_no, first.queued["target"].shape, first.delay) == (0, (0, 1), 2)
    assert (second.frame_no, second.queued["target"][:, 0].tolist(), second.delay) == (4, [5, 6, 7, 8], 2)


def test_an_empty_queue_holds_and_the_late_answer_continues_in_time() -> None:
    chunked = policy(Predictor(4), delay=6)
    taken = [act(chunked, frame) for frame in range(9)]
    assert taken == [1, 2, 3, 4, 4, 4, 4, 4, 4]  # the answer to frame 1 would end at frame 5: all passed at frame 8
    assert chunked.answers == -1
    assert chunked.totals.passed >= 4


def test_an_episode_is_the_same_at_every_speed() -> None:
    runs = []
    for pause in (0.0, 0.003):
        chunked = policy(Predictor(8, lambda *_, pause=pause: time.sleep(pause)), delay=5)
        runs.append([act(chunked, frame) for frame in range(30)])
    assert runs[0] == runs[1]


# -- real time -------------------------------------------------------------------------------------------------


def test_frames_go_on_while_a_thread_predicts() -> None:
    predictor = Predictor(16, lambda *_: time.sleep(0.03))
    chunked = policy(predictor)
    taken = []
    for frame in range(60):
        taken.append(act(chunked, frame))
        time.sleep(0.01)
    chunked.close()
    assert taken == [frame + 1 for frame in range(60)]
    totals = chunked.totals
    assert totals.held == 0
    assert totals.passed >= 2 * (totals.chunks - 1)  # 30 ms are about three frames
    assert predictor.asked[-1][1].delay >= 2
    assert predictor.closed == 1


def test_the_first_chunk_is_awaited_and_no_frame_passes() -> None:
    predictor = Predictor(8, lambda frame, _: time.sleep(0.2 if frame == 0 else 0))
    chunked = policy(predictor)
    assert act(chunked, 0) == 1
    assert chunked.totals.passed == 0
    chunked.close()


def test_a_first_chunk_that_does_not_come_is_an_error() -> None:
    release = threading.Event()
    chunked = policy(Predictor(8, lambda *_: release.wait(5)), warm_up_s=0.1)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"the policy Predictor gave no action within 0\.1 s"):
        act(chunked, 0)
    assert time.monotonic() - begun < 2
    release.set()
    chunked.close()


def test_a_warm_up_may_fail_by_its_deadline_several_times() -> None:
    failures = iter([True, True, False])

    def answer(frame: int, context: ChunkContext) -> None:
        if next(failures, False):
            raise DeadlineExceeded("no answer", 1.0)

    chunked = policy(Predictor(8, answer), delay=0)
    assert act(chunked, 0) == 1


@pytest.mark.parametrize("error", [ConnectionLost("no server at tcp://127.0.0.1:9"), RobotError("refused")])
def test_a_server_that_is_not_there_or_refuses_is_reported_at_once(error: RobotError) -> None:
    def answer(frame: int, context: ChunkContext) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        act(policy(Predictor(8, answer), delay=0), 0)


@pytest.mark.parametrize("error", [DeadlineExceeded("no answer", 1.0), ConnectionLost("the server is gone")])
def test_a_failed_request_holds_and_a_fresh_one_has_the_newest_observation(error: RobotError) -> None:
    def answer(frame: int, context: ChunkContext) -> None:
        if 1 <= frame < 9:
            raise error

    predictor = Predictor(4, answer)
    chunked = policy(predictor, delay=0)
    assert [act(chunked, frame) for frame in range(12)] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 10, 11, 12]
    assert [frame for frame, _ in predictor.asked][-2:] == [9, 11]
    assert chunked.totals.held == 5


def test_a_silent_policy_ends_the_hold_by_a_deadline() -> None:
    def answer(frame: int, context: ChunkContext) -> None:
        if frame:
            raise DeadlineExceeded("no answer", 1.0)

    chunked = policy(Predictor(4, answer), delay=0)
    taken = [act(chunked, frame) for frame in range(24)]
    assert taken[3:] == [4] * 21
    assert chunked.totals.held == 20  # two seconds at 10 Hz
    with pytest.raises(DeadlineExceeded, match=r"Predictor gave no action in 20 frames, 2 s, .*: no answer within 1 s"):
        act(chunked, 24)


def test_an_illegal_chunk_is_refused_with_field_and_index() -> None:
    chunked = policy(Predictor(4, lambda *_: {"target": np.array([[1.0], [np.nan]])}), delay=0)
    with pytest.raises(IllegalAction, match=r"action 1 of the chunk: action\.target\[0\]"):
        act(chunked, 0)


def test_without_a_robot_the_answer_is_awaited() -> None:
    predictor = Predictor(3, lambda *_: time.sleep(0.01))
    chunked = policy(predictor, None, refill=0.0)
    assert [act(chunked, frame) for frame in range(12)] == [frame + 1 for frame in range(12)]
    assert chunked.totals.held == 0
    chunked.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"delay": -1}, "delay is -1"), ({"refill": 1.5}, "refill is 1.5"), ({"warm_up_s": 0}, "warm_up_s is 0"),
     ({"hold_frames": 0}, "hold_frames is 0"), ({"blend": -2}, "blend is -2")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ChunkedPolicy(Predictor(), LIMITER, **settings)


def test_close_may_be_called_twice_and_before_any_action() -> None:
    predictor = Predictor()
    chunked = policy(predictor)
    chunked.close()
    chunked.close()
    assert predictor.closed == 2


# -- late answers ----------------------------------------------------------------------------------------------


class LatePredictor(Predictor):
    """A predictor that plants late answers: each is kept until the next episode has begun, and answers the old one.

    The actions of episode e are e * 1000 and following, so an action shows the episode whose observation it answers.
    """

    def __init__(self, plant: int) -> None:
        super().__init__(length=plant)
        self.episode = 0
        self.planted = 0
        self.next_episode = threading.Event()
        self.asked_again = threading.Event()

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> Mapping[str, np.ndarray]:
        episode = self.episode
        if context.frame_no:
            self.asked_again.set()
            assert self.next_episode.wait(10)
            self.next_episode.clear()
            self.planted += self.length
        return {"target": episode * 1000.0 + np.arange(self.length, dtype=float)[:, None]}


def test_of_ten_thousand_late_answers_none_is_executed() -> None:
    predictor = LatePredictor(plant=100)
    chunked = policy(predictor, hold_frames=1000)
    executed: list[tuple[int, float]] = []
    frame = 0
    for episode in range(101):
        chunked.reset()
        predictor.episode = episode
        if episode:
            predictor.next_episode.set()  # the answer to the last episode comes now, while this one begins
        for frame in range(60):
            executed.append((episode, act(chunked, frame)))
        assert predictor.asked_again.wait(10)
        predictor.asked_again.clear()
    predictor.next_episode.set()
    chunked.close()
    assert predictor.planted >= 10_000
    assert [pair for pair in executed if pair[1] // 1000 != pair[0]] == []


def test_a_late_answer_of_an_abandoned_first_request_is_discarded() -> None:
    release = threading.Event()
    values = iter([111.0, 222.0])

    def answer(frame: int, context: ChunkContext) -> dict[str, np.ndarray]:
        value = next(values)
        assert release.wait(10)
        return {"target": np.full((4, 1), value)}

    chunked = policy(Predictor(4, answer), warm_up_s=0.1)
    with pytest.raises(DeadlineExceeded):
        act(chunked, 0)
    chunked.reset()
    release.set()
    assert act(chunked, 0) == 222.0
    chunked.close()


def test_seams_are_limited_as_in_the_queue() -> None:
    limiter = ActionLimiter(
        RobotSpec("slide", ROBOT.sensors, ACTION, 10.0, Limits(max_velocity={"target": 5.0}),
                  measured_by={"target": "position"}),
        ACTION, lambda action, _: action, lambda: {"position": np.zeros(1)},
    )  # fmt: skip
    chunked = policy(Predictor(4, lambda frame, _: {"target": np.full((4, 1), frame / 1.0)}), limiter, delay=0)
    taken = [act(chunked, frame) for frame in range(12)]
    assert max(abs(np.diff(taken))) <= 0.5 + 1e-9
    assert chunked.totals.seam == pytest.approx(1.0)
    assert chunked.totals.limited > 0
