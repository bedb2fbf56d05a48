"""A person's verdict on an episode: in the record, and where the task asks in the reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import Answer, DeadlineExceeded, Guard, Homing, ResetFailed, ResetRequest
from hal.reset.confirmation import VerdictRequest
from real.client.robot import RemoteRobot
from real.server.server import Server
from recorder.log.labels import read_labels
from recorder.table.load import load_runs
from rlenv_robot.env import Environment
from rlenv_robot.recording.observer import record_to
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.reach import Reach
from sim.robot import SimRobot
from sim.robots.so101 import so101


@dataclass(frozen=True)
class Verdicts(Reach):
    """Reach, rewarded by the person's verdict."""

    steps: int = 4
    verdict_question: str = "is the tip at the target?"

    def verdict_reward(self, verdict: str) -> float:
        return {"success": 10.0, "failure": -1.0, "discard": 0.0}[verdict]


class Brief(Reach):
    """Reach that is over soon."""

    steps = 4


class Person:
    """A person who resets the scene and gives each episode its planned verdict, or raises the planned error."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[ResetRequest | VerdictRequest] = []

    def _next(self) -> str | None:
        said = self.verdicts.pop(0)
        if isinstance(said, Exception):
            raise said
        return said  # type: ignore[no-any-return]

    def ask(self, request: ResetRequest) -> Answer:
        self.asked.append(request)
        return Answer("person", "", self._next() if request.verdict else None)

    def judge(self, request: VerdictRequest) -> Answer:
        self.asked.append(request)
        return Answer("person", "seen", self._next())

    def close(self) -> None:
        pass


def episode(env: Environment) -> tuple[Mapping[str, Any], list[float]]:
    """One episode of standing still; the last table and the rewards."""
    table, rewards = env.reset(), []
    while not (table["terminated"] or table["truncated"]):
        still = {"joint_target": table["observation"]["joint_goal"]}
        table, reward = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": still})
        rewards.append(reward["reward"])
    return table, rewards


def arm() -> SimRobot:
    return SimRobot(so101(), teleport=False)


def homing(person: Person, verdicts: bool = False) -> Homing:
    return Homing(Guard(arm()), person, verdicts=verdicts)


def run_of(folder: Path) -> Path:
    (run,) = folder.iterdir()
    return run


def infos(folder: Path) -> list[Mapping[str, Any]]:
    return list(load_runs(folder).episodes)


@pytest.mark.requirement("R6.6")
def test_the_task_asks_and_the_verdict_is_in_reward_and_record(tmp_path: Path) -> None:
    person = Person("success", "failure")
    world = RobotWorld(homing(person), Verdicts())
    with Environment(world, observer=record_to(tmp_path, world, None)) as env:
        good, rewards = episode(env)
        bad, worse = episode(env)
    assert rewards[-1] == pytest.approx(10.0, abs=1.1)
    assert worse[-1] == pytest.approx(-1.0, abs=1.1)
    assert (good["extra_info"]["verdict"], good["extra_info"]["success"]) == ("success", True)
    assert (bad["extra_info"]["verdict"], bad["extra_info"]["success"]) == ("failure", False)
    questions = [request for request in person.asked if isinstance(request, VerdictRequest)]
    assert [request.message for request in questions] == ["is the tip at the target?"] * 2
    assert [(info["verdict"], info["judged_by"]) for info in infos(tmp_path)] == [
        ("success", "person"),
        ("failure", "person"),
    ]
    assert infos(tmp_path)[0]["return"] == pytest.approx(sum(rewards))
    # The same task rewards the log anew, to the same sum.
    data = rr.open_source(tmp_path, task=Verdicts())  # type: ignore[arg-type]
    assert [record["return"] for record in data.table.episodes] == pytest.approx([sum(rewards), sum(worse)])


def test_a_task_that_does_not_ask_asks_nobody() -> None:
    person = Person()
    episode(Environment(RobotWorld(homing(person), Brief())))
    assert all(isinstance(request, ResetRequest) for request in person.asked)


def test_a_judge_is_asked_after_every_episode_of_any_task() -> None:
    person = Person("discard", None)
    env = Environment(RobotWorld(Guard(arm()), Brief(), judge=person))
    table, rewards = episode(env)
    assert table["extra_info"]["verdict"] == "discard"
    assert table["extra_info"]["success"] is False  # the task's own word stays
    assert abs(rewards[-1]) <= 1.0
    assert "verdict" not in episode(env)[0]["extra_info"]


@pytest.mark.parametrize("problem", [DeadlineExceeded("nobody", 1.0), ResetFailed("the terminal is closed")])
def test_nobody_there_costs_the_verdict_and_nothing_else(problem: Exception) -> None:
    table, _ = episode(Environment(RobotWorld(homing(Person(problem)), Verdicts())))
    assert "verdict" not in table["extra_info"]


def test_the_record_of_the_reset_is_in_the_episodes_record(tmp_path: Path) -> None:
    class Refuses(Person):
        def ask(self, request: ResetRequest) -> Answer:
            if not self.asked:
                self.asked.append(request)
                raise ResetFailed("the scene is on fire")
            return super().ask(request)

    world = RobotWorld(homing(Refuses()), Brief())
    with Environment(world, observer=record_to(tmp_path, world, None)) as env:
        with pytest.raises(ResetFailed):
            env.reset()
        episode(env)
    (info,) = infos(tmp_path)
    assert (info["reset"]["outcome"], info["reset"]["by"]) == ("done", "person")
    assert set(info["reset"]["seconds"]) == {"called", "asked", "ready", "homing", "reached"}
    (failed,) = info["failed_resets"]
    assert (failed["outcome"], failed["detail"]) == ("refused", "the scene is on fire")


@contextmanager
def served(person: Person, verdicts: bool) -> Iterator[Guard]:
    """A robot served from another thread, where the person judges; the record is made in this one."""
    robot = Homing(Guard(arm()), person, None, lambda *event: server.report(*event), verdicts=verdicts)
    server = Server(robot, lockstep=True)
    with server:
        remote = RemoteRobot(server.address)
        try:
            yield Guard(remote)
        finally:
            remote.close()


@pytest.mark.requirement("R6.6")
def test_a_verdict_that_comes_with_the_next_reset_labels_the_episode_before(tmp_path: Path) -> None:
    with served(Person("failure", "discard"), verdicts=True) as robot:
        world = RobotWorld(robot, Brief())
        with Environment(world, observer=record_to(tmp_path, world, None)) as env:
            for _ in range(3):
                episode(env)
    said = read_labels(run_of(tmp_path))
    assert {number: label["verdict"] for number, label in said.items()} == {0: "failure", 1: "discard"}
    assert said[0]["who"] == "person"
    assert infos(tmp_path)[1]["reset"]["verdict"] == "failure"
    data = rr.open_source(tmp_path)
    assert set(data.sample_steps(200)["extra_info"]["episode"].tolist()) == {0, 2}  # what is discarded is no data
    assert set(data.sample_steps(20, {"verdict": "discard"})["extra_info"]["episode"].tolist()) == {1}


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
def test_over_the_network_the_person_at_the_robot_is_asked_at_the_end(tmp_path: Path) -> None:
    person = Person("success", ResetFailed("nobody is here"))
    with served(person, verdicts=True) as robot:
        world = RobotWorld(robot, Verdicts())
        with Environment(world, observer=record_to(tmp_path, world, None)) as env:
            table, rewards = episode(env)
            assert table["extra_info"]["verdict"] == "success"
            assert rewards[-1] == pytest.approx(10.0, abs=1.1)
            assert "verdict" not in episode(env)[0]["extra_info"]
    assert [info.get("verdict") for info in infos(tmp_path)] == ["success", None]
    assert not any(request.verdict for request in person.asked if isinstance(request, ResetRequest))


def test_a_verdict_on_somebody_elses_episode_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    person = Person("failure", "failure", "success")
    with served(person, verdicts=True) as robot:
        world = RobotWorld(robot, Brief())
        with Environment(world, observer=record_to(tmp_path, world, None)) as env:
            episode(env)
            robot.reset({})  # somebody else's, as far as the environment knows; it gets the verdict on ours
            episode(env)  # this reset's verdict is on the other's
            episode(env)
    assert {number: label["verdict"] for number, label in read_labels(run_of(tmp_path)).items()} == {1: "success"}
