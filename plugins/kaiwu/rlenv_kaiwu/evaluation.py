"""Evaluate a model of a Kaiwu project: play episodes with its agent's ``exploit``, as the platform evaluates."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from hal.atomic_file import atomic_write
from rlenv_kaiwu.agent import Counter, Method, original
from rlenv_kaiwu.env import Bridge, KaiwuEnv
from rlenv_kaiwu.models import ModelPool
from rlenv_kaiwu.project import Project, open_project
from rlenv_kaiwu.run import EnvLike, make_env, open_workplace
from rlenv_robot.env import Environment
from rlenv_robot.training.trials import wilson

__all__ = ["EvaluatedEpisode", "Evaluation", "evaluate_project", "find_model", "mean_interval", "share_interval"]

_FILE = re.compile(r"model\.ckpt-(\d+)(?=\D|$)")
_RESAMPLES = 10_000


@dataclass(frozen=True)
class EvaluatedEpisode:
    """The result of an episode.

    Attributes:
        score: sum of the rewards; with several agents the mean of their sums.
        steps: number of steps, including refused ones.
        refused: number of steps with an illegal action, in which nothing moved.
        success: the task's verdict; None if it gives none.
        end: ``terminated``, ``truncated`` or ``failed``; a failed one, whose environment broke, counts in no score.
        agent_scores: with several agents, name -> sum of the agent's rewards; empty with one agent.
    """

    score: float
    steps: int
    refused: int
    success: bool | None
    end: str
    agent_scores: Mapping[str, float] = field(default_factory=dict, hash=False)


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
    def agent_scores(self) -> dict[str, list[float]]:
        """The scores of each agent in these episodes; empty with one agent."""
        played = [one.agent_scores for one in self.episodes if one.end != "failed"]
        return {name: [scores[name] for scores in played] for name in (played[0] if played else ())}

    @property
    def verdicts(self) -> list[bool]:
        """The task's verdicts on these episodes, if it gives any."""
        return [one.success for one in self.episodes if one.end != "failed" and one.success is not None]

    def write(self, path: Path) -> None:
        """Write model, intervals and episodes as JSON."""
        scores, verdicts = self.scores, self.verdicts
        episodes = [asdict(episode) for episode in self.episodes]
        if not any(episode.agent_scores for episode in self.episodes):
            for entry in episodes:
                del entry["agent_scores"]
        content: dict[str, object] = {"model": self.model, "episodes": episodes}
        if scores:
            content |= _mean(scores)
        if agents := self.agent_scores:
            content["agents"] = {name: _mean(own) for name, own in agents.items()}
        if verdicts:
            content |= {"success": float(np.mean(verdicts)), "success_interval": share_interval(verdicts)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _mean(scores: Sequence[float]) -> dict[str, object]:
    return {"mean_score": float(np.mean(scores)), "mean_score_interval": mean_interval(scores)}


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
    folder: str | Path | Project, env: EnvLike, *, out: str | Path, model: str = "latest", episodes: int = 20,
    bridge: Callable[[Environment], Bridge] | None = None, seed: int | None = None,
) -> Evaluation:  # fmt: skip
    """Play episodes with a project's agent, whose ``exploit`` chooses the actions; nothing is learned.

    The agent's ``reset`` begins each episode where it has one. The form of ``exploit`` follows its project: it takes
    what the environment shows and returns an action of the environment; where its parameter is ``list_obs_data`` it
    takes observations of ``observation_process`` and returns ``ActData`` for ``action_process``. Each of several agents
    has an agent object with this model, as in the workflow; ``exploit`` takes what its agent observes, and the
    environment gets the list of actions. In a project of style ``batch`` it takes the tensor of all robots'
    observations, and returns a list with one ``ActData``, whose ``action`` has all robots' actions.

    Args:
        folder: the project, or its directory.
        env: the environment, which is closed at the end, or for style ``batch`` the function that makes the batch.
        out: the folder of the run; results go to ``evaluation/model-NUMBER.json`` in it.
        model: as for `find_model`.
        episodes: number of episodes.
        bridge: translates observations and actions for a project written for another environment.
        seed: seed of the first episode; 0 by default, so that models meet the same episodes.

    Raises:
        ValueError: the number of episodes is not positive, there is no such model, or ``exploit`` is missing or returns
            nothing.
    """
    with ExitStack() as stack:
        if isinstance(env, Environment):
            stack.callback(env.close)
        if episodes < 1:
            raise ValueError(f"--episodes is {episodes}, it must be at least 1")
        project = folder if isinstance(folder, Project) else open_project(folder)
        ckpt, number = find_model(model, Path(out))
        place = stack.enter_context(open_workplace(project, Path(out), "evaluation"))
        counter = Counter()
        view = make_env(env, project.style, counter, seed or 0, bridge)
        stack.callback(view.close)
        agents = place.make_agents(max(1, len(view.agents)))
        for agent in agents:
            original(agent, "load_model")(path=str(ckpt), id=str(number))
        if isinstance(view, KaiwuEnv):
            player = _Player(agents, view, project.style)
            played = [player.play(counter) for _ in range(episodes)]
        else:
            exploit = original(agents[0], "exploit")
            played = _play_batch(exploit, cast("Any", view), episodes, _batch_settings(project.folder, seed or 0))
        result = Evaluation(number, played)
        result.write(place.out / "evaluation" / f"model-{number}.json")
        return result


class _Player:
    """Play episodes with the ``exploit`` of an agent, or of one for each agent's name, in the shapes of a year."""

    def __init__(self, agents: Sequence[object], view: KaiwuEnv, style: str) -> None:
        self._agents, self._view, self._style = cast("list[Any]", agents), view, style
        self._exploits: list[Method] = [original(agent, "exploit") for agent in agents]
        self._of_list = next(iter(inspect.signature(self._exploits[0]).parameters), "") == "list_obs_data"

    def play(self, counter: Counter) -> EvaluatedEpisode:
        names = self._view.agents
        steps, refused, scores = counter.steps, counter.refusals, np.zeros(len(self._agents))
        obs, state = self._parts(self._view.reset({}))
        end = "failed" if obs is None else ""
        if not end:
            for number in range(len(self._agents)):
                self._begin(number, self._own(obs, number))
        while not end:
            acts = [self._choose(number, self._own(obs, number), state) for number in range(len(self._agents))]
            reward, obs, state, end = self._step(acts if names else acts[0])
            scores += [float(_of(reward, names, number)) for number in range(len(self._agents))]
        success = state.get("success") if isinstance(state, Mapping) else None
        verdict = None if success is None else bool(success)
        own = dict(zip(names, scores.tolist(), strict=True)) if names else {}
        counts = counter.steps - steps, counter.refusals - refused
        return EvaluatedEpisode(float(scores.mean()), *counts, verdict, end, own)

    def _own(self, obs: Any, number: int) -> Any:
        """Return what one of several agents observes."""
        if self._style == "2026":
            return {**obs, "observation": _of(obs["observation"], self._view.agents, number)}
        return _of(obs, self._view.agents, number)

    def _parts(self, shown: Any) -> tuple[Any, Any]:
        """Return what `KaiwuEnv.reset` has returned, and the state in it."""
        if self._style == "2026":
            return shown, None if shown is None else shown["extra_info"]
        return (shown, None) if self._style == "2024" else shown

    def _begin(self, number: int, obs: object) -> None:
        reset = getattr(self._agents[number], "reset", None)
        for arguments in ((obs,), ()) if self._style == "2026" else ((), (obs,)):
            if callable(reset) and _takes(reset, *arguments):
                reset(*arguments)
                return

    def _choose(self, number: int, obs: object, state: object) -> object:
        agent, exploit = self._agents[number], self._exploits[number]
        if not self._of_list:
            both = self._style == "2025" and not self._view.agents
            act = exploit({"obs": obs, "extra_info": state} if both else obs)
        else:
            process = agent.observation_process
            data = process(obs, state) if self._style != "2026" and _takes(process, obs, state) else process(obs)
            act = exploit([data[0] if isinstance(data, tuple) else data])
            if act is not None:
                act = act[0][0] if isinstance(act, tuple) else act[0]
                if hasattr(agent, "action_process"):
                    act = agent.action_process(act)
                elif len(fields := vars(act)) == 1:  # the workflow's own act.NAME
                    (act,) = fields.values()
        if act is None:
            raise ValueError(f"exploit of {type(agent).__name__} returned None: agent.py must define it")
        return act

    def _step(self, act: object) -> tuple[object, object, object, str]:
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
        return score, obs, state, "terminated" if ends[0] else "truncated" if ends[1] else ""


def _of(values: Any, names: Sequence[str], number: int) -> Any:
    """Return an agent's entry of values by name or by number; a single value is that of every agent."""
    if not names:
        return values
    if isinstance(values, Mapping):
        return values[names[number]] if names[number] in values else values[number]
    return values[number] if isinstance(values, Sequence) else values


_BATCH_SETTINGS = ("tools/conf/base/eval_env_base.toml", "tools/eval/conf/eval_env_conf.toml")
"""Files of a project of the legged-robot track with the ``usr_conf`` of its evaluation: the later one counts."""

_MOST_ROBOTS = 64


def _batch_settings(folder: Path, seed: int) -> dict[str, Any]:
    """Return the ``usr_conf`` of a project's evaluation, with a seed; only the seed where the project has none."""
    settings: dict[str, Any] = {}
    for path in (folder / name for name in _BATCH_SETTINGS):
        if path.is_file():
            _merge(settings, tomllib.loads(path.read_text(encoding="utf-8")))
    return _merge(settings, {"env_conf": {"seed": seed}})


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Put values into nested tables, and return these."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value
    return base


def _play_batch(exploit: Method, view: Any, episodes: int, settings: dict[str, Any]) -> list[EvaluatedEpisode]:
    """Play episodes of many robots at once.

    The episodes are dealt out to the robots before they begin: whichever ends first would be a short one.
    """
    _merge(settings, {"env": {"num_envs": min(episodes, _MOST_ROBOTS)}})
    obs, _ = view.reset(settings)
    robots = len(obs)
    score, steps = np.zeros(robots), np.zeros(robots, int)
    played: list[list[EvaluatedEpisode]] = [[] for _ in range(robots)]
    due = [len(range(robot, episodes, robots)) for robot in range(robots)]
    while any(len(each) < number for each, number in zip(played, due, strict=True)):
        acts = exploit(obs)
        if acts is None:
            raise ValueError("exploit returned None: agent.py must define it")
        _, obs, reward, terminated, truncated, _ = view.step(cast("Any", acts)[0].action)
        score += np.asarray(reward)
        steps += 1
        for robot in np.flatnonzero(np.asarray(terminated | truncated)):
            end = "terminated" if terminated[robot] else "truncated"
            played[robot].append(EvaluatedEpisode(float(score[robot]), int(steps[robot]), 0, None, end))
            score[robot] = steps[robot] = 0
    return [played[number % robots][number // robots] for number in range(episodes)]


def _takes(function: Callable[..., object], *arguments: object) -> bool:
    """Return whether a function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True
