"""Act on a robot with the newest weights of a learner in another process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from rlenv_learn.online.learner import Learner, WeightsFile
from rlenv_learn.online.networks import Actor, load_arrays
from rlenv_learn.online.settings import OnlineSettings
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.env import Environment
from rlenv_robot.tables import ObservationTable, Options
from rlenv_robot.tasks.agents import mean_reward
from rlenv_robot.tasks.task import Arrays
from rlenv_robot.training.rollout import Outcome
from rlenv_robot.world import NOTHING

__all__ = ["OnlineActor", "take_turns"]

_WAIT_S = 0.05


class OnlineActor:
    """Step an environment with actions drawn from a policy while a learner replaces the policy's weights.

    Between two choices the actor looks for new weights in a file. This takes microseconds, so the robot never waits for
    the learner. Without a learner, the actor continues with the last weights.

    Args:
        env: an environment that records its episodes, such as one of a served robot.
        flat: vectors of one control period.
        folder: the learner's folder (`rlenv_learn.online.learner.Learner`).
        settings: settings of the learner.
        seed: seed of the actions.
    """

    def __init__(
        self, env: Environment, flat: FlattenObservation, folder: Path, settings: OnlineSettings, seed: int
    ) -> None:
        self.env, self.frames = env, 0
        self._flat, self._hold = flat, settings.hold
        self.weights = WeightsFile(folder)
        self._random = torch.Generator().manual_seed(seed)
        self._actor = Actor(flat, settings, self._random)

    def wait(
        self,
        frames: int | None = None,
        ensure: Callable[[], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait for the learner's first weights, or until the learner has caught up.

        Args:
            frames: number of control periods that the learner must have read, with all updates due for them; None waits
                only for the first weights.
            ensure: called repeatedly while waiting, such as `LearnerProcess.ensure`, which starts a missing learner.
            sleep: waits, seconds.
        """
        while True:
            if ensure is not None:
                ensure()
            self.refresh()
            if self.weights.read and (frames is None or self.weights.caught_up(frames)):
                return
            sleep(_WAIT_S)

    def refresh(self) -> None:
        """Load the newest weights if they changed."""
        arrays = self.weights.newer()
        if arrays is not None:
            load_arrays(self._actor, arrays)

    def choose(self, observation: Arrays) -> np.ndarray:
        """Draw the action vector (A,) for the next control periods."""
        self.refresh()
        vector = torch.from_numpy(self._flat.observe(observation))[None]
        noise = torch.randn((1, self._flat.action_size), generator=self._random)
        with torch.no_grad():
            action: np.ndarray = self._actor.draw(vector, noise)[0][0].numpy()
        return action

    def episode(self, options: Options = NOTHING) -> Outcome:
        """Run one episode, and return its outcome.

        Args:
            options: the options of the environment's reset.

        Raises:
            RobotError: the start could not be reached.
        """
        table = self.env.reset(options)
        total = 0.0
        while not _over(table):
            vector = self.choose(table["observation"])
            for _ in range(self._hold):
                action = self._flat.act(vector, table["observation"])
                request = {"env_id": self.env.env_id, "frame_no": table["frame_no"], "action": action}
                table, reward = self.env.step(request)
                total += float(mean_reward(reward["reward"]))
                if _over(table):
                    break
        self.frames += table["frame_no"]
        extra = table["extra_info"]
        end = "terminated" if table["terminated"] else str(extra.get("truncated_by", "truncated"))
        return Outcome(total, extra.get("metrics", {}), bool(extra.get("success", False)), table["frame_no"], end)


def take_turns(actor: OnlineActor, learner: Learner, steps: int, seed: int) -> Iterator[Outcome]:
    """Run actor and learner alternately in one process, for simulations, which can wait.

    Args:
        actor: an actor that records into the learner's folder.
        learner: the learner.
        steps: control periods after which no further episode begins.
        seed: seed of the episodes.

    Yields:
        The outcome of each episode, after the learner has made the updates due.
    """
    while actor.frames < steps:
        outcome = actor.episode({"seed": seed} if not actor.frames else {})
        while learner.frames < actor.frames:
            if not learner.read():
                time.sleep(_WAIT_S)
        learner.update(learner.owed)
        learner.publish()
        yield outcome


def _over(table: ObservationTable) -> bool:
    return bool(table["terminated"] or table["truncated"])
