"""The kit sees every fault of an environment that Stable-Baselines3's or PettingZoo's checker sees."""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plugins.kit.tests.test_subject import FAULTS_OF_THEIRS, REMARKED, _array, _change, _point
from rlenv_kit import Report, check_environment

pytestmark = pytest.mark.requirement("R4.3", "R6.3", "R6.5")


def _sees(check: Callable[[], object]) -> bool:
    """Return whether a checker fails or warns; its advice on names and spaces is no fault."""
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            check()
        except Exception:
            return True
    advice = ("recommend", "probably", "not a NumPy array", "different", "single number", "symmetric", "all zeros")
    return any(not any(word in str(one.message) for word in advice) for one in told)


def _seen(report: Report, clean: Callable[[], Report]) -> bool:
    """Return whether a report has a finding, or a note that the report of the correct environment lacks."""
    return not report.passed or bool(set(report.notes) - set(clean().notes))


# -- Stable-Baselines3 -------------------------------------------------------------------------------------------


def _gymnasium_report(make: Callable[[], Any]) -> Report:
    from rlenv_bridges.from_gymnasium import from_gymnasium

    return check_environment(lambda: from_gymnasium(make()), name="theirs")


@functools.cache
def _clean_gymnasium_report() -> Report:
    return _gymnasium_report(lambda: _point()())


def _open_actions() -> Any:
    import gymnasium

    space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    return type("Open", (_point(),), {"action_space": space})()


def _reused(self: Any) -> Any:
    self.__dict__.setdefault("buffer", _array([0.0, 0.0]))[:] = self.at, self.steps
    return self.buffer


def _writes(self: Any, action: Any) -> Any:
    self.at, self.steps = self.at + float(action[0]), self.steps + 1
    action[0] = 0
    return self.seen(), self.reward(), False, self.steps >= 10, {}


OF_GYMNASIUM: dict[str, Callable[[], Any]] = {
    **FAULTS_OF_THEIRS,
    **REMARKED,
    "observations share a buffer": _change(seen=_reused),
    "the action is written into": _change(step=_writes),
    "reward of NumPy": _change(reward=lambda self: np.float32(-abs(self.at))),
    "flag of NumPy": _change(step=lambda self, action: (_array([0.0, 0.0]), 0.0, np.bool_(False), True, {})),
    "reward is None": _change(reward=lambda self: None),
    "reward is not a number": _change(reward=lambda self: float("nan")),
    "step gives info alone": _change(step=lambda self, action: {}),
    "info of a reset is None": _change(reset=lambda self, *, seed=None, options=None: (_array([0.0, 0.0]), None)),
    "observation is a tuple": _change(seen=lambda self: (self.at, self.steps)),
    "observation is infinite": _change(seen=lambda self: _array([float("inf"), 0.0])),
    "actions without bounds": _open_actions,
}


@pytest.mark.parametrize(("fault", "key"), [
    ("observations share a buffer", "kept tables"), ("the action is written into", "actions"),
])  # fmt: skip
def test_arrays_that_the_adapter_copies_are_checked(fault: str, key: str) -> None:
    """Gymnasium's own checker sees these two as well."""
    failures = _gymnasium_report(OF_GYMNASIUM[fault]).failures
    assert [check.key for check in failures] == [key]


@pytest.mark.slow
@pytest.mark.parametrize("fault", OF_GYMNASIUM)
def test_what_stable_baselines_sees_is_seen(fault: str) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="needs the extra sb3")
    if not _sees(lambda: checker.check_env(OF_GYMNASIUM[fault]())):
        pytest.skip("their checker sees nothing, so this fault compares nothing")
    assert _seen(_gymnasium_report(OF_GYMNASIUM[fault]), _clean_gymnasium_report)


def test_the_point_is_good_for_stable_baselines_too() -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="needs the extra sb3")
    assert not _sees(lambda: checker.check_env(_point()()))


# -- PettingZoo: agents at once ----------------------------------------------------------------------------------


def _sledge() -> type[Any]:
    pettingzoo = pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from gymnasium import spaces

    class Sledge(pettingzoo.ParallelEnv):  # type: ignore[misc, name-defined]
        """Two push a sledge; the second leaves after 6 of 9 steps."""

        metadata = {"name": "sledge"}  # noqa: RUF012
        possible_agents = ["a_0", "a_1"]  # noqa: RUF012
        render_mode = None
        boxes = {  # noqa: RUF012
            "observation": spaces.Box(-9, 9, (2,), np.float32),
            "action": spaces.Box(-1, 1, (1,), np.float32),
        }

        def observation_space(self, agent: str) -> Any:
            return self.boxes["observation"]

        def action_space(self, agent: str) -> Any:
            return self.boxes["action"]

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            if seed is not None or not hasattr(self, "rng"):
                self.rng = np.random.default_rng(seed)
            self.agents, self.time = list(self.possible_agents), 0
            self.at = self.rng.normal(size=2)
            return self.seen(self.agents), {agent: {} for agent in self.agents}

        def seen(self, agents: Any) -> Any:
            return {agent: np.clip(self.at, -9, 9).astype(np.float32) for agent in agents}

        def step(self, actions: Any) -> Any:
            live = list(self.agents)
            self.time += 1
            for agent, action in actions.items():
                self.at[int(agent[-1])] += float(action[0]) * 0.1
            return self.answer(live)

        def answer(self, live: Any) -> Any:
            over = {agent: self.time >= (9 if agent == "a_0" else 6) for agent in live}
            self.agents = [agent for agent in live if not over[agent]]
            return (self.seen(live), {agent: self.earned(agent) for agent in live}, dict.fromkeys(live, False), over,
                    {agent: {} for agent in live})  # fmt: skip

        def earned(self, agent: str) -> Any:
            return -float(abs(self.at[int(agent[-1])]))

        def render(self) -> None: ...

        def close(self) -> None: ...

    return Sledge


def _at_once(**members: Any) -> Callable[[], Any]:
    return lambda: type("Broken", (_sledge(),), members)()


def _part(number: int, change: Callable[[Any], Any]) -> Callable[[], Any]:
    def answer(self: Any, live: Any) -> Any:
        parts = list(super(type(self), self).answer(live))
        parts[number] = change(parts[number])
        return tuple(parts)

    return _at_once(answer=answer)


def _without(part: Any) -> Any:
    return {agent: value for agent, value in part.items() if agent != "a_1"}


def _answer_late(self: Any, live: Any) -> Any:
    parts = super(type(self), self).answer(live)
    self.agents = [agent for agent in self.possible_agents if self.time < 9]
    return parts


AT_ONCE: dict[str, Callable[[], Any]] = {
    "an observation is missing": _part(0, _without),
    "a reward is missing": _part(1, _without),
    "a termination is missing": _part(2, _without),
    "a truncation is missing": _part(3, _without),
    "an info is missing": _part(4, _without),
    "observations are a list": _part(0, lambda part: list(part.values())),
    "rewards are a number": _part(1, lambda part: 0.0),
    "infos are None": _part(4, lambda part: None),
    "somebody else is rewarded": _part(1, lambda part: {**part, "a_7": 0.0}),
    "the second agent is rewarded to the end": _part(1, lambda part: {"a_0": 0.0, "a_1": 0.0, **part}),
    "an agent that left comes back": _at_once(answer=_answer_late),
    "four parts": _at_once(answer=lambda self, live: super(type(self), self).answer(live)[:4]),
    "reset gives observations alone": _at_once(
        reset=lambda self, seed=None, options=None: super(type(self), self).reset(seed, options)[0]
    ),
    "reset takes no seed": _at_once(reset=lambda self: super(type(self), self).reset()),
    "a space is another at each call": _at_once(
        observation_space=lambda self, agent: type(self.boxes["observation"])(-9, 9, (2,), np.float32)
    ),
    "agents that are not possible": _at_once(
        reset=lambda self, seed=None, options=None: (
            super(type(self), self).reset(seed, options), self.agents.append("a_7"))[0]
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", AT_ONCE)
def test_what_pettingzoo_sees_of_agents_at_once_is_seen(fault: str) -> None:
    pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from pettingzoo.test import parallel_api_test

    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    assert _sees(lambda: parallel_api_test(AT_ONCE[fault](), 30)), "their checker sees nothing"
    assert _seen(check_environment(lambda: from_pettingzoo(AT_ONCE[fault]()), name="theirs"), _clean_report_at_once)


@functools.cache
def _clean_report_at_once() -> Report:
    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    return check_environment(lambda: from_pettingzoo(_sledge()()), name="theirs")


def test_the_sledge_is_good_for_both() -> None:
    pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from pettingzoo.test import parallel_api_test

    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    assert not _sees(lambda: parallel_api_test(_sledge()(), 30))
    check_environment(lambda: from_pettingzoo(_sledge()())).raise_if_failed()


# -- PettingZoo: agents in turn ----------------------------------------------------------------------------------


def _nim() -> type[Any]:
    pettingzoo = pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from gymnasium import spaces

    class Nim(pettingzoo.AECEnv):  # type: ignore[misc, name-defined]
        """Two take one to three of a heap; the last one wins."""

        metadata = {"name": "nim", "is_parallelizable": False}  # noqa: RUF012
        render_mode = None

        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = ["p_0", "p_1"]
            self.seen_in, self.acting = spaces.Box(0, 20, (2,), np.float32), spaces.Discrete(3, start=1)

        def observation_space(self, agent: str) -> Any:
            return self.seen_in

        def action_space(self, agent: str) -> Any:
            return self.acting

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            if seed is not None or not hasattr(self, "rng"):
                self.rng = np.random.default_rng(seed)
            self.agents, self.heap = list(self.possible_agents), int(self.rng.integers(12, 20))
            self.rewards, self._cumulative_rewards = self.nothing(0.0), self.nothing(0.0)
            self.terminations, self.truncations = self.nothing(False), self.nothing(False)
            self.infos = {agent: {} for agent in self.agents}
            self.agent_selection = self.agents[0]

        def nothing(self, value: Any) -> Any:
            return dict.fromkeys(self.agents, value)

        def observe(self, agent: str) -> Any:
            return np.array([self.heap, 1 + self.possible_agents.index(agent)], np.float32)

        def step(self, action: Any) -> Any:
            mover = self.agent_selection
            if self.terminations[mover] or self.truncations[mover]:
                self._was_dead_step(action)
                return
            self._cumulative_rewards[mover] = 0.0
            self.heap = max(0, self.heap - int(action))
            self.agent_selection = next(agent for agent in self.agents if agent != mover)
            self.rewards = self.nothing(0.0)
            if self.heap == 0:
                self.win(mover)
            self._accumulate_rewards()

        def win(self, mover: str) -> None:
            self.terminations = self.nothing(True)
            self.rewards = {agent: 1.0 if agent == mover else -1.0 for agent in self.agents}

        def render(self) -> None: ...

        def close(self) -> None: ...

    return Nim


def _in_turn(**members: Any) -> Callable[[], Any]:
    return lambda: type("Broken", (_nim(),), members)()


def _after_reset(change: Callable[[Any], object]) -> Callable[[], Any]:
    def reset(self: Any, seed: Any = None, options: Any = None) -> None:
        super(type(self), self).reset(seed, options)
        change(self)

    return _in_turn(reset=reset)


def _after_step(change: Callable[[Any], object]) -> Callable[[], Any]:
    def step(self: Any, action: Any) -> None:
        super(type(self), self).step(action)
        change(self)

    return _in_turn(step=step)


IN_TURN: dict[str, Callable[[], Any]] = {
    "a flag is a number": _after_reset(lambda env: env.terminations.update(p_0=0)),
    "a truncation is None": _after_reset(lambda env: env.truncations.update(p_0=None)),
    "an info is a list": _after_reset(lambda env: env.infos.update(p_0=[])),
    "a reward is text": _after_reset(lambda env: env.rewards.update(p_0="much")),
    "an observation is out of its space": _in_turn(observe=lambda self, agent: np.array([99, 1], np.float32)),
    "an observation is of another type": _in_turn(observe=lambda self, agent: np.array([self.heap, 1], np.int64)),
    "an observation is NaN": _in_turn(observe=lambda self, agent: np.array([np.nan, 1], np.float32)),
    "an observation is of another shape": _in_turn(observe=lambda self, agent: np.array([self.heap], np.float32)),
    "step returns something": _in_turn(step=lambda self, action: (super(type(self), self).step(action), 1)[1]),
    "rewards are not summed up": _in_turn(_accumulate_rewards=lambda self: None),
    "a stranger is rewarded": _after_step(lambda env: env.rewards.update(p_7=0.0)),
    "an info is missing": _after_step(lambda env: env.infos.pop("p_1", None)),
    "a space is another at each call": _in_turn(action_space=lambda self, agent: type(self.acting)(3, start=1)),
    "reset takes no seed": _in_turn(reset=lambda self: super(type(self), self).reset()),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", IN_TURN)
def test_what_pettingzoo_sees_of_agents_in_turn_is_seen(fault: str) -> None:
    pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from pettingzoo.test import api_test

    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    assert _sees(lambda: api_test(IN_TURN[fault](), 30, verbose_progress=False)), "their checker sees nothing"
    assert _seen(check_environment(lambda: from_pettingzoo(IN_TURN[fault]()), name="theirs"), _clean_report_in_turn)


@functools.cache
def _clean_report_in_turn() -> Report:
    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    return check_environment(lambda: from_pettingzoo(_nim()()), name="theirs")


def test_nim_is_good_for_both() -> None:
    pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from pettingzoo.test import api_test

    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    assert not _sees(lambda: api_test(_nim()(), 30, verbose_progress=False))
    check_environment(lambda: from_pettingzoo(_nim()())).raise_if_failed()


def test_an_action_that_the_mask_forbids_is_refused() -> None:
    pytest.importorskip("pettingzoo", reason="needs PettingZoo: the extra agents")
    from rlenv_bridges.from_pettingzoo import from_pettingzoo

    masked = _after_reset(lambda env: env.infos.update(p_0={"action_mask": np.array([0, 1, 1], np.int8)}))
    with from_pettingzoo(masked()) as env:
        table = env.reset({"seed": 1})
        refused, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": {"action": 1}})
        assert refused["extra_info"]["error"]["code"] == "rule"
        assert refused["frame_no"] == 0
        after, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": {"action": 2}})
        assert after["observation"]["observation"][0] == table["observation"]["observation"][0] - 2
