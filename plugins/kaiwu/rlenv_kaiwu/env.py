"""Adapt environments to Kaiwu's ``reset(usr_conf)`` and ``step(act, stop_game)``, in the shapes of each year."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from hal import EpisodeError, Field, RobotError, Spec
from rlenv_kaiwu.agent import Counter
from rlenv_kaiwu.session import Style
from rlenv_robot.env import Environment
from rlenv_robot.tables import ActionTable, ObservationTable, Reward, RewardTable
from rlenv_robot.tasks.agents import Agent, agents_of, joint_action, own_observation
from rlenv_robot.world import NOTHING

__all__ = ["Bridge", "KaiwuEnv", "PlainBridge", "handle_disaster_recovery", "to_kaiwu"]

_log = logging.getLogger(__name__)

MOST_FAILED_RESETS = 5
"""Number of consecutive failed resets at which the error is raised, since workflows would retry forever."""

MOST_REFUSALS = 100
"""Number of consecutive illegal actions after which an episode is truncated."""

Answer: TypeAlias = Any
"""A tuple or table in the shape of the project's year."""


class Bridge:
    """Translate between our tables and the values that a project's preprocessor and ``action_process`` use.

    This base class passes observations, rewards and actions on unchanged, with one dictionary per agent if there are
    several. A project for another environment reads fields that ours does not have: derive a class that builds them.

    The options of ``reset`` are the keys of ``usr_conf``, or of its table ``env_conf``, that our environment knows.
    Other keys belong to another environment and are reported once in the log.

    Args:
        env: the environment.
    """

    def __init__(self, env: Environment) -> None:
        self._action = env.action
        self._agents = tuple(agents_of(env.world))
        self._known = frozenset(env.description.reset_options)
        self._name = env.world.name
        self._reported: set[str] = set()

    def options(self, usr_conf: Mapping[str, object]) -> Mapping[str, object]:
        """Return the reset options of our environment that a configuration contains."""
        inner = usr_conf.get("env_conf")
        options = {**usr_conf, **inner} if isinstance(inner, Mapping) else dict(usr_conf)
        unknown = {key for key in options if key not in self._known and key != "env_conf"} - self._reported
        if unknown:
            self._reported |= unknown
            _log.warning(
                "usr_conf: %s has no %s; it knows %s",
                self._name, ", ".join(sorted(unknown)), ", ".join(sorted(self._known)) or "no options",
            )  # fmt: skip
        return {key: value for key, value in options.items() if key in self._known}

    def observation(self, table: ObservationTable) -> object:
        """Return the observation (``obs``), or with several agents a dictionary agent -> observation."""
        if not self._agents:
            return table["observation"]
        return {agent.name: own_observation(table["observation"], agent.sees) for agent in self._agents}

    def state(self, table: ObservationTable) -> object:
        """Return the global state: ``extra_info`` with the privileged state, metrics, errors and ends."""
        return dict(table.get("extra_info", {}))

    def score(self, reward: Reward, table: ObservationTable) -> object:
        """Return the reward, or with several agents a dictionary agent -> reward."""
        return dict(reward) if isinstance(reward, Mapping) else float(reward)

    def action(self, act: object) -> Mapping[str, object]:
        """Return the action by field. For several agents, ``act`` is a list in their order or a dictionary by name."""
        if not self._agents:
            return _by_field(act, self._action)
        if isinstance(act, Sequence) and not isinstance(act, str):
            act = dict(zip((agent.name for agent in self._agents), act, strict=False))
        if not isinstance(act, Mapping) or act.keys() != {agent.name for agent in self._agents}:
            return {"act": act}  # which the environment refuses, by name
        chosen = {agent.name: _by_field(act[agent.name], self._own(agent)) for agent in self._agents}
        return joint_action(self._agents, chosen)

    def _own(self, agent: Agent) -> Spec:
        return agent.action(self._action)


PlainBridge = Bridge
"""The name of `Bridge` in earlier versions."""


def _by_field(act: object, spec: Spec) -> Mapping[str, object]:
    """Return an action by field: a bare number or array belongs to a spec's only field."""
    if isinstance(act, Mapping):
        return {str(name): _typed(value, spec[name]) if name in spec else value for name, value in act.items()}
    if len(spec) == 1:
        return {spec.fields[0].name: _typed(act, spec.fields[0])}
    return {"act": act}


def _typed(value: object, field: Field) -> object:
    """Return a value in the field's type where only its precision or its shape of one element differs."""
    array = np.asarray(value)
    same_kind = array.dtype.kind == field.numpy_dtype.kind or (
        array.dtype.kind in "iu" and field.numpy_dtype.kind in "iu"
    )
    if array.shape != field.shape and array.size == field.size == 1:
        array = array.reshape(field.shape)
    if same_kind and array.dtype != field.numpy_dtype:
        cast_array = array.astype(field.numpy_dtype)
        return cast_array if np.allclose(cast_array, array, equal_nan=True) else array
    return array


class KaiwuEnv:
    """One environment with Kaiwu's ``reset`` and ``step``, simulated or real, with one agent or several.

    | style | ``reset(usr_conf)`` | ``step(act, stop_game=False)`` |
    |---|---|---|
    | ``document``, ``2025`` | obs, state | frame_no, obs, score, terminated, truncated, state |
    | ``2024`` | obs | the same |
    | ``2026`` | Table 1 | Table 3, Table 1 |

    A failed reset or step is logged and returns None in place of each observation, as workflows expect. The fifth
    consecutive failed reset raises the error, since a workflow would retry forever.

    ``stop_game=True`` ends the episode normally (`Environment.end`): ``act`` is not carried out, the robot keeps its
    last command, ``truncated`` is True, and the state has the episode's outcome. An illegal action moves nothing: the
    frame number stays, and the state has ``error``. A hundred of them in a row truncate the episode: the state says so
    in ``truncated_by``, keeps the last ``error``, and has ``success`` False, whatever the task says.

    Args:
        env: the environment, of which this object takes ownership.
        style: the project's year.
        bridge: translates observations and actions.
        counter: counts steps and episodes.
        seed: seed of the first episode, if ``usr_conf`` gives none. Later episodes continue its sequence until
            ``usr_conf`` gives another seed; the same seed again, as from a file that is read once, does not restart it.

    Raises:
        ValueError: the style is unknown.
    """

    def __init__(
        self, env: Environment, style: Style = "document", bridge: Bridge | None = None,
        counter: Counter | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        if style not in ("document", "2024", "2025", "2026"):
            raise ValueError(f"style is {style!r}, allowed are 'document', '2024', '2025' and '2026'")
        self.env, self._style, self._counter, self._first_seed = env, style, counter or Counter(), seed
        self._seed: object = None
        self._bridge = Bridge(env) if bridge is None else bridge
        self._tables = style == "2026"
        self._table: ObservationTable | None = None
        self._failed_resets = self._refusals = 0
        self._step = env.step

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents; empty for a single agent."""
        return tuple(agent.name for agent in agents_of(self.env.world))

    def reset(self, usr_conf: Mapping[str, object] | None = None) -> Answer:
        """Begin an episode.

        Args:
            usr_conf: the project's configuration; see `Bridge` for the keys that have an effect.

        Raises:
            ValueError: the configuration is not a mapping, or an option has a wrong value.
            RobotError: the start could not be reached in five consecutive resets.
        """
        if usr_conf is not None and not isinstance(usr_conf, Mapping):
            raise ValueError(f"usr_conf is a {type(usr_conf).__name__}, expected a dictionary such as {{'seed': 7}}")
        self._counter.began_episode()
        options = dict(self._bridge.options(usr_conf or {}))
        self._seed_once(options)
        try:
            table = self.env.reset(options)
        except RobotError as error:
            self._table = None
            self._failed_resets += 1
            if self._failed_resets >= MOST_FAILED_RESETS:
                raise
            _log.error("reset failed: %s", error)
            return None if self._style in ("2024", "2026") else (None, None)
        self._failed_resets = self._refusals = 0
        self._table = table
        if self._tables:
            return self._shown(table)
        observation = self._bridge.observation(table)
        return observation if self._style == "2024" else (observation, self._bridge.state(table))

    def _seed_once(self, options: dict[str, object]) -> None:
        """Keep a seed among the options only where it is a new one: a workflow gives the same one at each reset."""
        seed = options.pop("seed", self._first_seed)
        if seed is not None and seed != self._seed and "seed" in self.env.description.reset_options:
            options["seed"] = self._seed = seed

    def step(self, act: object, stop_game: bool = False) -> Answer:
        """Carry out an action, or end the episode.

        Args:
            act: the action by field, or only its value if the action has one field.
            stop_game: whether to end the episode normally, without carrying out ``act``.

        Raises:
            EpisodeError: no episode is in progress.
        """
        table = self._table
        if stop_game:
            return self._stopped("stop_game")
        self._counter.stepped()
        request: ActionTable = {
            "env_id": self.env.env_id,
            "frame_no": 0 if table is None else table["frame_no"],
            "action": cast("Mapping[str, Any]", self._bridge.action(act)),
        }
        try:
            self._table, reward = self._step(request)
        except EpisodeError:
            raise  # nothing failed but the workflow
        except RobotError as error:
            _log.error("step failed: %s", error)
            self._table = None
            return (None, None) if self._tables else (None, None, 0.0, False, True, None)
        if "error" in self._table.get("extra_info", ()):
            self._refusals += 1
            self._counter.refused()
            if self._refusals >= MOST_REFUSALS:
                outcome = {"success": False, "error": self._table["extra_info"]["error"]}
                return self._stopped(f"{MOST_REFUSALS} illegal actions in a row", outcome)
        else:
            self._refusals = 0
        return self._answer(self._table, reward)

    def _stopped(self, reason: str, outcome: Mapping[str, object] = NOTHING) -> Answer:
        """End the episode with a reason, and with what ``outcome`` says over what the world says."""
        table = self.env.end(reason)
        table = self._table = {**table, "extra_info": {**table.get("extra_info", {}), **outcome}}
        names = self.agents
        reward: Reward = dict.fromkeys(names, 0.0) if names else 0.0
        return self._answer(table, {"env_id": table["env_id"], "frame_no": table["frame_no"], "reward": reward})

    def _answer(self, table: ObservationTable, reward: RewardTable) -> Answer:
        bridge = self._bridge
        if self._tables:
            return {**reward, "reward": bridge.score(reward["reward"], table)}, self._shown(table)
        return (
            table["frame_no"],
            bridge.observation(table),
            bridge.score(reward["reward"], table),
            bool(table["terminated"]),
            bool(table["truncated"]),
            bridge.state(table),
        )

    def _shown(self, table: ObservationTable) -> dict[str, object]:
        return {
            **table, "observation": self._bridge.observation(table), "extra_info": self._bridge.state(table),
        }  # fmt: skip

    def close(self) -> None:
        """Close the environment. Safe to call more than once."""
        self.env.close()


def to_kaiwu(
    env: Environment, style: Style = "document", bridge: Callable[[Environment], Bridge] | None = None
) -> KaiwuEnv:
    """Adapt an environment to Kaiwu's interface; see `KaiwuEnv`. ``bridge`` makes the bridge for an environment."""
    return KaiwuEnv(env, style, None if bridge is None else bridge(env))


def handle_disaster_recovery(env_obs: object, logger: logging.Logger | None = None) -> bool:
    """Return whether a reset or step failed, so that the workflow of a 2026 project begins another episode."""
    failed = env_obs is None or (
        isinstance(env_obs, Mapping) and (env_obs.get("frame_no") is None or env_obs.get("observation") is None)
    )
    if failed and logger is not None:
        logger.error("the environment failed: the workflow begins another episode")
    return failed
