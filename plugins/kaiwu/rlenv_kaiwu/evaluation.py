"""Evaluate a model of a Kaiwu project: play episodes with its agent's ``exploit``, as the platform evaluates."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from hal.atomic_file import atomic_write
from rlenv_kaiwu.agent import Counter, Method, original
from rlenv_kaiwu.env import Bridge, KaiwuEnv
from rlenv_kaiwu.models import ModelPool
from rlenv_kaiwu.project import Project, open_project
from rlenv_kaiwu.run import open_workplace
from rlenv_robot.env import Environment
from rlenv_robot.training.trials import wilson

__all__ = ["EvaluatedEpisode", "Evaluation", "evaluate_project", "find_model", "mean_interval", "share_interval"]

_FILE = re.compile(r"model\.ckpt-(\d+)(?=\D|$)")
_RESAMPLES = 10_000


@dataclass(frozen=True)
class EvaluatedEpisode:
    """The result of an episode.

    Attributes:
        score: sum of the rewards.
        steps: number of steps, including refused ones.
        refused: number of steps with an illegal action, in which nothing moved.
        success: the task's verdict; None if it gives none.
        end: ``terminated``, ``truncated`` or ``failed``; a failed one, whose environment broke, counts in no score.
    """

    score: float
    steps: int
    refused: int
    success: bool | None
    end: str


@dataclass(frozen=True)
class Evaluation:
    """The results of a model.

    Attributes:
        model: the model's number of training steps.
        episodes: the episodes in their order.
    """

    model: int
    episodes: Sequence[EvaluatedEpisode]

    @property
    def scores(self) -> list[float]:
        """The scores of the episodes that did not fail."""
        return [episode.score for episode in self.episodes if episode.end != "failed"]

    @property
    def verdicts(self) -> list[bool]:
        """The task's verdicts on these episodes, if it gives any."""
        return [one.success for one in self.episodes if one.end != "failed" and one.success is not None]

    def write(self, path: Path) -> None:
        """Write model, intervals and episodes as JSON."""
        scores, verdicts = self.scores, self.verdicts
        content: dict[str, object] = {"model": self.model, "episodes": [asdict(episode) for episode in self.episodes]}
        if scores:
            content |= {"mean_score": float(np.mean(scores)), "mean_score_interval": mean_interval(scores)}
        if verdicts:
            content |= {"success": float(np.mean(verdicts)), "success_interval": share_interval(verdicts)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, by resampling the values (percentile bootstrap)."""
    array = np.asarray(values, np.float64)
    means = array[np.random.default_rng(0).integers(len(array), size=(_RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def share_interval(verdicts: Sequence[bool]) -> tuple[float, float]:
    """Return the 95 % interval of the share of true verdicts (Wilson, 1927)."""
    low, high = wilson(sum(verdicts), len(verdicts), 1.959964)
    return max(0.0, low), min(1.0, high)


def find_model(model: str, out: Path) -> tuple[Path, int]:
    """Return the folder and the number of a model.

    Args:
        model: ``latest`` or a number, of the models in ``out``; or the path of a file ``model.ckpt-NUMBER.*``.
        out: the folder of a run.

    Raises:
        ValueError: there is no such model; the message lists those that there are.
    """
    path = Path(model)
    if model != "latest" and not model.isdigit():
        match = _FILE.search(path.name)
        if match is None or not path.is_file():
            raise ValueError(f"--model is {model!r}, allowed are 'latest', a number, or a file model.ckpt-NUMBER.*")
        return path.absolute().parent, int(match[1])
    folder = out / "ckpt"
    if not folder.is_dir() or ModelPool(folder).latest is None:
        raise ValueError(f"{folder} has no model: train one with rlenv-robot kaiwu run, or name a file with --model")
    return folder.absolute(), ModelPool(folder).find(model)


def evaluate_project(
    folder: str | Path | Project, env: Environment, *, out: str | Path, model: str = "latest", episodes: int = 20,
    bridge: Callable[[Environment], Bridge] | None = None, seed: int | None = None,
) -> Evaluation:  # fmt: skip
    """Play episodes with a project's agent, whose ``exploit`` chooses the actions; nothing is learned.

    The agent's ``reset`` begins each episode where it has one. The form of ``exploit`` follows its project: it takes
    what the environment shows and returns an action of the environment; where its parameter is ``list_obs_data`` it
    takes observations of ``observation_process`` and returns ``ActData`` for ``action_process``.

    Args:
        folder: the project, or its directory.
        env: the environment, which is closed at the end.
        out: the folder of the run; results go to ``evaluation/model-NUMBER.json`` in it.
        model: as for `find_model`.
        episodes: number of episodes.
        bridge: translates observations and actions for a project written for another environment.
        seed: seed of the first episode; 0 by default, so that models meet the same episodes.

    Raises:
        ValueError: the number of episodes is not positive, there is no such model, the project steps batches or
            several agents, or ``exploit`` is missing or returns nothing.
    """
    with ExitStack() as stack:
        stack.callback(env.close)
        if episodes < 1:
            raise ValueError(f"--episodes is {episodes}, it must be at least 1")
        project = folder if isinstance(folder, Project) else open_project(folder)
        if project.style == "batch":
            raise ValueError(
                "a project of style batch steps many robots at once and has no evaluation here; its own workflow "
                "evaluates, or export its policy and use rlenv-robot run"
            )
        ckpt, number = find_model(model, Path(out))
        place = stack.enter_context(open_workplace(project, Path(out), "evaluation"))
        counter = Counter()
        view = KaiwuEnv(env, project.style, None if bridge is None else bridge(env), counter, seed or 0)
        if len(view.agents) > 1:
            raise ValueError(f"{env.world.name} has agents {', '.join(view.agents)}; evaluation is for one agent")
        (agent,) = place.make_agents(1)
        exploit = original(agent, "exploit")
        original(agent, "load_model")(path=str(ckpt), id=str(number))
        player = _Player(agent, exploit, view, project.style)
        result = Evaluation(number, [player.play(counter) for _ in range(episodes)])
        result.write(place.out / "evaluation" / f"model-{number}.json")
        return result


class _Player:
    """Play episodes with an agent's ``exploit``, in the shapes of a year."""

    def __init__(self, agent: object, exploit: Method, view: KaiwuEnv, style: str) -> None:
        self._agent, self._exploit, self._view, self._style = cast("Any", agent), exploit, view, style
        self._of_list = next(iter(inspect.signature(exploit).parameters), "") == "list_obs_data"

    def play(self, counter: Counter) -> EvaluatedEpisode:
        steps, refused, score = counter.steps, counter.refusals, 0.0
        obs, state = self._parts(self._view.reset({}))
        end = "failed" if obs is None else ""
        if not end:
            self._begin(obs)
        while not end:
            reward, obs, state, end = self._step(self._choose(obs, state))
            score += reward
        success = state.get("success") if isinstance(state, Mapping) else None
        verdict = None if success is None else bool(success)
        return EvaluatedEpisode(score, counter.steps - steps, counter.refusals - refused, verdict, end)

    def _parts(self, shown: Any) -> tuple[Any, Any]:
        """Return what `KaiwuEnv.reset` has returned, and the state in it."""
        if self._style == "2026":
            return shown, None if shown is None else shown["extra_info"]
        return (shown, None) if self._style == "2024" else shown

    def _begin(self, obs: object) -> None:
        reset = getattr(self._agent, "reset", None)
        for arguments in ((obs,), ()) if self._style == "2026" else ((), (obs,)):
            if callable(reset) and _takes(reset, *arguments):
                reset(*arguments)
                return

    def _choose(self, obs: object, state: object) -> object:
        if not self._of_list:
            act = self._exploit({"obs": obs, "extra_info": state} if self._style == "2025" else obs)
        else:
            process = self._agent.observation_process
            data = process(obs, state) if self._style != "2026" and _takes(process, obs, state) else process(obs)
            act = self._exploit([data[0] if isinstance(data, tuple) else data])
            if act is not None:
                act = act[0][0] if isinstance(act, tuple) else act[0]
                if hasattr(self._agent, "action_process"):
                    act = self._agent.action_process(act)
                elif len(fields := vars(act)) == 1:  # the workflow's own act.NAME
                    (act,) = fields.values()
        if act is None:
            raise ValueError(f"exploit of {type(self._agent).__name__} returned None: agent.py must define it")
        return act

    def _step(self, act: object) -> tuple[float, object, object, str]:
        answer = self._view.step(act)
        if self._style == "2026":
            reward, obs = answer
            if obs is None:
                return 0.0, None, None, "failed"
            score, state, ends = reward["reward"], obs["extra_info"], (obs["terminated"], obs["truncated"])
        else:
            _, obs, score, terminated, truncated, state = answer
            if obs is None:
                return 0.0, None, None, "failed"
            ends = (terminated, truncated)
        return float(score), obs, state, "terminated" if ends[0] else "truncated" if ends[1] else ""


def _takes(function: Callable[..., object], *arguments: object) -> bool:
    """Return whether a function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True
