"""Scripts of calls whose answers tell a faulty environment from the correct one."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Script = Callable[[Callable[[], Any]], list[Any]]


def plain(value, env=None):
    """Return a value as comparable data that keeps types, with the ids of an environment or batch as marks."""
    if isinstance(value, Mapping):
        return {str(name): plain(one, env) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(plain(one, env) for one in value)]
    if isinstance(value, str):
        names = [] if env is None else getattr(env, "env_ids", None) or [env.env_id]
        for row, name in enumerate(names):
            value = value.replace(name, f"<id {row}>")
        return value
    return (type(value).__name__, repr(value))


def called(env, call: Callable[[], Any]):
    """Return the answer of a call as data, or the class of its exception."""
    try:
        return plain(call(), env)
    except Exception as error:
        return f"raised {type(error).__name__}"


def table_of(seen):
    return seen[0] if isinstance(seen, tuple) else seen


class Agent:
    """Play legal actions that a seed fixes, by the description, the mask and the table of the environment."""

    def __init__(self, env, seed: int = 0) -> None:
        self.env, self.rng, self.seen = env, np.random.default_rng(seed), {}
        self.log: list[Any] = []

    def reset(self, *options):
        answer = self.env.reset(*options)
        self.seen = table_of(answer)
        self.log.append(plain(answer, self.env))
        return answer

    def action(self, **fixed) -> dict[str, Any]:
        values = {name: np.array(value) for name, value in self.env.action.sample(self.rng).items()}
        for name, mask in (self.seen.get("extra_info") or {}).get("action_mask", {}).items():
            values[name] = np.array(self.rng.choice(np.flatnonzero(mask) if np.any(mask) else 1), np.int32)
        return {"env_id": self.seen["env_id"], "frame_no": self.seen["frame_no"], "action": {**values, **fixed}}

    def step(self, action=None, *extra):
        answer = self.env.step(self.action() if action is None else action, *extra)
        self.seen = table_of(answer)
        self.log.append(plain(answer, self.env))
        return answer

    def over(self) -> bool:
        return bool(self.seen["terminated"] or self.seen["truncated"])

    def play(self, steps: int, *extra) -> None:
        for _ in range(steps):
            if self.over():
                break
            self.step(None, *extra)


def guarded(script: Callable[[Any, list[Any]], None]) -> Script:
    """Return a script that keeps what it has seen up to an exception, which ends it."""

    def run(make: Callable[[], Any]) -> list[Any]:
        env = make()
        log: list[Any] = []
        try:
            script(env, log)
        except Exception as error:
            log.append(f"raised {type(error).__name__}")
        with contextlib.suppress(Exception):
            env.close()
        return log

    run.__name__ = script.__name__
    return run


@guarded
def episodes(env, log: list[Any]) -> None:
    """Play episodes after seeds, after the same seed again, and after none."""
    for number, options in enumerate(({"seed": 3}, {"seed": 3}, {}, {"seed": 0}, {"seed": 2**33}, {"seed": 11})):
        agent = Agent(env, number)
        agent.log = log
        agent.reset(options)
        agent.play(40)


@guarded
def long_episodes(env, log: list[Any]) -> None:
    """Play episodes with values near zero, the lowest and the highest."""
    for choice in ((lambda one: one.nothing), (lambda one: one.bounds[0]), (lambda one: one.bounds[1])):
        agent = Agent(env)
        agent.reset({"seed": 1})
        fixed = {one.name: np.array(choice(one)) for one in env.action if not one.is_text}
        for _ in range(140):
            if not agent.over():
                agent.step(agent.action(**fixed))
        log += agent.log


@guarded
def options(env, log: list[Any]) -> None:
    """Reset with each of the options of the world, and with wrong ones, during an episode."""
    agent = Agent(env)
    agent.log = log
    agent.reset({"seed": 3})
    for one in (*env.test_options, {}, {"seed": 3}):
        agent.reset(one)
        agent.play(2)
    bad = [{"unknown": 1}, {"seed": -1}, {"seed": 1.5}]
    bad += [{**env.test_options[0], "unknown": 1}] if env.test_options else []
    bad += [{"row": 9, "column": column} for column in (0, 2, 0)]
    for wrong in bad:
        log.append(called(env, lambda wrong=wrong: env.reset(wrong)))
        with contextlib.suppress(Exception):
            agent.step()


@guarded
def refusals(env, log: list[Any]) -> None:
    """Send illegal actions, then a legal one."""
    for seed in range(2):
        agent = Agent(env, seed)
        agent.log = log
        agent.reset({"seed": seed})
        first = next(iter(env.action))
        legal = agent.action()
        wrong: list[Any] = [
            {**legal, "env_id": "another"}, {**legal, "frame_no": 99}, {**legal, "frame_no": legal["frame_no"] - 1},
            {name: legal[name] for name in ("env_id", "frame_no")}, {**legal, "action": {}}, {**legal, "more": 1},
        ]  # fmt: skip
        values = ["", " ", 7, "é\u673a"] if first.is_text else [float("nan"), 99, -99, [1, 2, 3, 4], "x"]
        values += [] if first.is_text or first.shape else [int(first.bounds[1])]
        values += [np.full(first.shape, one) for one in (2.0, np.nan)] if first.shape else []
        wrong += [{**legal, "action": {**legal["action"], first.name: value}} for value in values]
        for action in wrong:
            if agent.over():
                break
            log.append(called(env, lambda agent=agent, action=action: agent.step(action)))
            if isinstance(log[-1], str):
                agent.reset({"seed": seed})
        for name, mask in (agent.seen.get("extra_info") or {}).get("action_mask", {}).items():
            for value in np.flatnonzero(np.asarray(mask) == 0)[:1]:
                agent.step(agent.action(**{name: value}))
        agent.play(2)


@guarded
def order(env, log: list[Any]) -> None:
    """Call in the wrong order, and close twice."""
    action = {"env_id": env.env_id, "frame_no": 0, "action": env.action.sample(np.random.default_rng(0))}
    log.append(called(env, lambda: env.step(action)))
    agent = Agent(env)
    agent.log = log
    agent.reset({"seed": 1})
    agent.play(300)
    log.append(called(env, lambda: env.step(agent.action())))
    log.append(called(env, env.close))
    log.append(called(env, env.close))
    log.append(called(env, lambda: env.reset({"seed": 1})))


@guarded
def rendering(env, log: list[Any]) -> None:
    """Render by a call in every frame, and see that nothing else changes."""
    agent = Agent(env, 1)
    agent.log = log
    agent.reset({"seed": 8})
    for _ in range(6):
        options = {"mode": "call", "to": lambda table: log.append(plain(table, env))}
        before = plain(agent.seen, env)
        log.append(called(env, lambda options=options: env.render(options)))
        log.append((sorted(options), before == plain(agent.seen, env)))
        if not agent.over():
            agent.step()
    log.append(called(env, env.render))


@guarded
def tables(env, log: list[Any]) -> None:
    """Keep tables and actions, and see whether later calls change them."""
    agent = Agent(env, 2)
    shown: list[tuple[Any, Any]] = []
    for options in ({"seed": 4}, {}):
        answer = agent.reset(options)
        shown.append((answer, copy.deepcopy(answer)))
        for _ in range(5):
            if agent.over():
                break
            action = agent.action()
            before = plain(action)
            answer = agent.step(action)
            shown.append((answer, copy.deepcopy(answer)))
            log.append(before == plain(action))
    log += [plain(one) == plain(kept) for one, kept in shown]


@guarded
def extra(env, log: list[Any]) -> None:
    """Step with extra_info: known entries, wrong ones, and none after them."""
    agent = Agent(env, 3)
    agent.log = log
    agent.reset({"seed": 5})
    own = getattr(env, "step_extra", None)
    fields = () if own is None else own.fields
    for given in ({one.name: one.bounds[1] for one in fields}, {}, {"log_probability": -0.5}, {"unknown": 1}, 7):
        log.append(called(env, lambda given=given: agent.step(None, given)))


@guarded
def described(env, log: list[Any]) -> None:
    """Read the specs and the description."""
    about = env.description
    log += [env.observation.to_dict(), env.action.to_dict(), about.about, about.reward.to_dict(), len(env.env_id)]
    named = env.env_id
    env.reset()
    log.append(env.env_id == named)
    log += [dict(about.reset_options), dict(about.extra_info), dict(about.error_codes), dict(about.step_extra)]


def instances(make: Callable[[], Any]) -> list[Any]:
    """Play in one of two instances, and look at the other."""
    one, other = make(), make()
    log: list[Any] = [one.env_id == other.env_id]
    try:
        mine, yours = Agent(one, 1), Agent(other, 2)
        mine.reset({"seed": 1})
        yours.reset({"seed": 2})
        for _ in range(2):
            if not mine.over():
                mine.step()
        log += mine.log
    except Exception as error:
        log.append(type(error).__name__)
    return log


SCRIPTS: tuple[Script, ...] = (
    episodes, long_episodes, options, refusals, order, rendering, tables, extra, described, instances,
)  # fmt: skip
