"""Run an actor and a learner in two processes that share a folder and may end and restart at any time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from hal import ConnectionLost, ResetConfirmation, Robot
from rlenv_learn.online.actor import OnlineActor
from rlenv_learn.online.learner import LOGS, Learner
from rlenv_learn.online.learner_process import LearnerProcess, over_with_parent
from rlenv_learn.online.replay import Reward, recorded_frames
from rlenv_learn.online.scripted_operator import ScriptedOperator
from rlenv_learn.online.settings import OnlineSettings
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.env import Environment
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.recording.observer import record_to
from rlenv_robot.registry import make, robot
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_env.intervention import HumanIntervention, Operator
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.tables import Options
from rlenv_robot.tasks.task import Task, task_world
from rlenv_robot.training.rollout import Outcome
from rlenv_robot.training.trials import twin_robot
from rlenv_robot.world import World

__all__ = ["POLICY", "OnlineSession", "can_intervene", "simulated"]

_log = logging.getLogger(__name__)

_BACK_S, _RETRY_S = 60.0, 0.5
_SCRIPT_VELOCITY = 2.7
"""Velocity of a scripted operator's interventions, rad/s: that of the scripts (`rlenv_tabletop.scripted`)."""

POLICY = "policy.onnx"
"""Name of the policy's file in the shared folder. The learner writes it when it ends normally."""


@dataclass(frozen=True, slots=True)
class OnlineSession:
    """The actor and the learner of one training run on one robot.

    Attributes:
        folder: folder shared by both, which continue from its contents.
        task: the task.
        demonstrations: folders of recorded demonstrations.
        settings: settings of the learner.
        seed: seed of networks, random draws and episodes.
        reward: see `rlenv_learn.online.replay.Reward`; ``verdict`` needs a ``judge`` in `act`.
    """

    folder: Path
    task: Task
    demonstrations: Sequence[Path] = ()
    settings: OnlineSettings = field(default_factory=OnlineSettings)
    seed: int = 0
    reward: Reward = "task"

    def act(
        self,
        where: str | Robot,
        steps: int,
        learner: LearnerProcess | None,
        *,
        keys: str | Path | None = None,
        operator: Operator | None = None,
        judge: ResetConfirmation | None = None,
    ) -> Iterator[Outcome]:
        """Run and record episodes, and yield the outcome of each.

        A robot waits only for the first weights. A simulation (``sim``, or a robot object of this process) waits after
        each episode for the learner's updates. A `ScriptedOperator` observes the episodes. After a lost connection,
        such as that of a killed server, the next episode is retried for 60 s. A stop ends the run, since only a person
        may clear it.

        Args:
            where: the robot, as for `rlenv_robot.make`.
            keys: as for `rlenv_robot.make`.
            operator: as for `rlenv_robot.make`.
            judge: as for `rlenv_robot.make`.
            steps: total control periods of all runs in the folder, after which no new episode begins.
            learner: the process to keep running; None if another program runs the learner.

        Raises:
            RobotError: the start of an episode could not be reached.
        """
        torch.set_num_threads(1)
        done = recorded_frames(self.folder / LOGS)
        logs = self.folder / LOGS
        info = {"policy": self.settings.method, "source": "learning"}
        with make(self.task, where, record=logs, info=info, keys=keys, operator=operator, judge=judge) as env:
            inner = task_world(env.world)
            if isinstance(operator, ScriptedOperator) and isinstance(inner, RobotWorld):
                operator.watch(inner)
            seed = self.seed + done
            actor = OnlineActor(env, flat_for(self.task), self.folder, self.settings, seed)
            ensure = None if learner is None else learner.ensure
            is_simulation = where == "sim" or not isinstance(where, str)
            while done + actor.frames < steps:
                actor.wait(done + actor.frames if is_simulation else None, ensure)
                yield _episode(actor, {} if actor.frames else {"seed": seed})

    def learn(self, over: Callable[[], bool] | None = None) -> Path:
        """Learn from the actor's logs until ``over`` returns True, then write the policy, and return its path.

        Args:
            over: returns whether to end; None for SIGTERM, Ctrl-C, or the end of the parent process.

        Raises:
            SourceError: the demonstrations can't be read.
            RobotError: the saved state is damaged, or the packages that ONNX needs are missing.
        """
        torch.set_num_threads(1)
        over = over or over_with_parent()
        learner = Learner(self.folder, self.task, self.demonstrations, self.settings, self.seed, self.reward)
        learner.follow(over)
        about = {
            "trainer": self.settings.method,
            "steps": learner.frames,
            "updates": learner.agent.updates,
            "seed": self.seed,
        }
        path = self.folder / POLICY
        learner.policy().save_onnx(path, self.task.name, about, robot_of_training(self.task))
        return path


def can_intervene(task: Task) -> bool:
    """Return whether a person can take over: the task's actions must be the robot's commands."""
    return task.action.digest == robot_model_of(task).load_spec().commands.digest


def simulated(
    task: Task, record: Path, operator: ScriptedOperator | None = None, arm: int | None = None, policy: str = ""
) -> Environment:
    """Make a simulated environment that records its episodes, faster than real time.

    Args:
        task: the task.
        record: folder of the runs.
        operator: a scripted operator, which moves the arm at the scripts' velocity; None for none.
        arm: seed of the simulated twin; None for the nominal robot.
        policy: name of the method that acts, for the record.

    Raises:
        ValueError: the task's robot has no twin.
        LogError: the folder can't be written.
    """
    inner = RobotWorld(robot(robot_model_of(task)) if arm is None else twin_robot(task, arm), task)
    world: World = inner
    if operator is not None:
        operator.watch(inner)
        world = HumanIntervention(inner, operator, _SCRIPT_VELOCITY)
    return Environment(world, observer=record_to(record, world, {"policy": policy, "source": "learning"}))


def _episode(actor: OnlineActor, options: Options) -> Outcome:
    """Run an episode; retry while its start finds the connection lost."""
    deadline = time.monotonic() + _BACK_S
    while True:
        try:
            return actor.episode(options)
        except ConnectionLost as error:
            if time.monotonic() > deadline:
                raise
            _log.warning("the robot is not reached, and tried again: %s", error)
            time.sleep(_RETRY_S)
