"""Test the contract of an environment, using its description (clauses 6.2, 6.4; R1, R2, R4)."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from hashlib import sha256
from typing import cast

import numpy as np

from hal import Spec
from hal.errors import wrong_type
from rlenv_kit.described import described_checks
from rlenv_kit.episodes import MAX_FRAMES, episode_checks
from rlenv_kit.extras import extra_checks
from rlenv_kit.illegal import refusal_checks
from rlenv_kit.instances import Factory, Leftovers, factory_of, instance_checks, process_state
from rlenv_kit.json_subject import not_on_the_border, request_checks
from rlenv_kit.later_tables import later_checks
from rlenv_kit.ownership import ownership_checks
from rlenv_kit.probe import Frame, Probe, StandardEnvironment, check_over, is_over, raises
from rlenv_kit.report import Failed, NotTried, Report
from rlenv_kit.supervisor import (
    CallLog,
    Deadlines,
    PlannedCheck,
    Supervisor,
    Witness,
    check,
    declared,
    in_order,
    without,
)
from rlenv_kit.tables import check_observation, difference, holds

__all__ = ["check_environment"]


def check_environment(
    env: StandardEnvironment | Factory,
    *,
    steps: int = 30,
    seed: int = 0,
    repeatable: bool = True,
    name: str = "",
    deadlines: Deadlines | None = None,
    only: int | str = 0,
    witness: Witness | None = None,
) -> Report:
    """Test an environment against its contract.

    The robot moves: any legal action may be tried, and many illegal ones are. However the run ends, the environment is
    stopped and closed.

    Args:
        env: an environment that has not been reset, which is closed at the end; or a function that makes one, so that
            several instances and another process are tested too.
        steps: the usual length of a walk; whole episodes are walked too, up to 5,000 frames or some seconds.
        seed: seeds all random draws.
        repeatable: False for a real machine, where equal seeds need not give equal episodes.
        name: the name of the environment in the report; by default its env_id.
        deadlines: limits on single calls and on the whole run.
        only: number (from 1) or key of the only check to run, after the checks that it needs; 0 runs all.
        witness: receives the progress of the run, for another process.

    Returns:
        The report of all checks. A broken environment raises nothing.

    Raises:
        KeyboardInterrupt: the run was interrupted; the environment was stopped and closed first.
    """
    if not hasattr(env, "step") and not callable(env):
        raise wrong_type("env", env, "an Environment, or a function that makes one")
    began = time.monotonic()
    log, probes = CallLog(deadlines or Deadlines(), witness), list[Probe]()
    supervisor = Supervisor(log)

    def prepare() -> list[PlannedCheck]:
        left.begin_thread()
        subject, factory = _opened(env, log)
        supervisor.stop, supervisor.close = getattr(subject, "stop", None), subject.close
        probe = Probe(subject, steps, seed, repeatable, log=log)
        probes.append(probe)
        return _plan(probe, factory, left)

    with Leftovers() as left:
        checks = supervisor.run(prepare, only)
    if not probes:  # making it hung, or ended the process
        return Report(f"environment {name or 'that was not made'}", checks, (), time.monotonic() - began)
    (probe,) = probes
    for text in getattr(getattr(probe.env, "world", None), "remarks", ()):
        probe.note("6.2.1-4", text)
    return Report(
        f"environment {name or probe.env_id}", checks, probe.notes, time.monotonic() - began,
        spec_digest=_digest(probe.env), steps=log.steps,
    )  # fmt: skip


def _digest(env: StandardEnvironment) -> str:
    """Return the digest of an environment's observation and action; empty where they can't be read."""
    try:
        described = [spec.to_dict() for spec in (env.observation, env.action)]
        return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    except Exception:  # a checked environment may raise anything
        return ""


def _opened(env: StandardEnvironment | Factory, log: CallLog) -> tuple[StandardEnvironment, Factory | None]:
    """Return an environment, and how another one is made, if that is known."""
    if hasattr(env, "reset") and not isinstance(env, type):
        made = cast("StandardEnvironment", env)
        return made, factory_of(made)
    factory = cast("Factory", env)
    return log.call("make", factory), factory


_ORDER = (
    "described", "too early", "reset", "plain reset", "unknown option", "frames", "extremes", "last frame", "agents",
    "responds", "equal starts", "equal episodes", "seeds", "generators", "clock", "spec stays", "error passes",
    "refusals", "refusals late", "refusals change nothing", "kept tables", "kept refusals", "overwritten tables",
    "actions", "forms", "options", "borders", "render", "masks", "messages", "step extra", "inference",
    "after the end", "entries", "reset options", "refused reset", "parameters", "last answer", "two instances",
    "process", "leftovers", "requests", "histories", "every table", "players",
    "closed", "left",
)  # fmt: skip
"""Keys of the checks by their number, from 1; a new one comes after the others that need the environment open."""


def _plan(probe: Probe, factory: Factory | None, left: Leftovers) -> list[PlannedCheck]:
    checks = [
        *declared(vars(_Basics), _Basics(probe), probe), *episode_checks(probe), *refusal_checks(probe),
        *ownership_checks(probe), *extra_checks(probe), *described_checks(probe), *instance_checks(probe, factory),
        *request_checks(probe.env, probe.note),
    ]  # fmt: skip
    ending = declared(vars(_Ending), _Ending(probe, left), probe)
    plan = in_order(_ORDER, [*checks, *later_checks(probe, checks), *ending])
    return without(plan, not_on_the_border(probe.env))


_TO_THE_END = 400
"""Frames up to which an episode is searched for privileged state."""


class _Basics:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._first: tuple[dict[str, object], ...] | None = None

    def _specs(self) -> tuple[dict[str, object], ...]:
        return tuple(spec.to_dict() for spec in (self._probe.env.observation, self._probe.env.action))

    @check("described", "every field has a type, a range, a unit and a meaning", "6.4-b")
    def described(self, probe: Probe) -> None:
        for spec in (probe.env.observation, probe.env.action):
            if not isinstance(spec, Spec):
                raise Failed(f"the description is a {type(spec).__name__}", "it must be a hal.Spec")
            if Spec.from_dict(spec.to_dict()) != spec:
                raise Failed(f"{spec.name} does not survive to_dict and from_dict")
            for field in spec:
                if not field.meaning.strip() or not field.unit.strip():
                    raise Failed(f"{spec.name}.{field.name} has no meaning or no unit")
        for field in probe.env.action:
            if field.numpy_dtype.kind == "f" and not np.isfinite([*np.ravel(field.low), *np.ravel(field.high)]).all():
                probe.note("6.4-b", f"action.{field.name} has no finite range; most trainers need one")
        reward = probe.declared_reward
        if reward is None:
            probe.note("6.4-b", "the reward has no description: env.description.reward is missing")
        elif not reward.meaning.strip():
            raise Failed("the reward has no meaning in the description")
        for key in ("reset_options", "step_extra", "extra_info", "error_codes"):
            for name, text in probe.described(key).items():
                if not isinstance(text, str) or not text.strip():
                    raise Failed(f"{key} of the description says nothing about {name!r}")
        self._first = self._specs()
        probe.state_before = process_state()

    @check("spec stays", "the description does not change", "6.4-b", "described", "frames")
    def spec_stays(self, probe: Probe) -> None:
        if self._first is None:
            raise NotTried("the description was not read at the beginning")
        self._probe.walk(5)
        getattr(probe.env, "describe_again", tuple)()
        if self._specs() != self._first:
            raise Failed("observation or action spec differ from those before the first reset")

    @check("too early", "a step before the first reset is refused", "contract")
    def step_before_reset(self, probe: Probe) -> None:
        raises(probe, lambda: probe.send({"frame_no": 0}, _any_action(probe)), "a step before the first reset")

    @check("reset", "reset returns Table 1 of the first frame", "6.2.2.1-1 6.2.2.1-4")
    def reset_table(self, probe: Probe) -> None:
        for _ in range(2):
            table = probe.reset()
            check_observation(table, probe.env.observation, probe.note)
            if table["env_id"] != probe.env_id or probe.env.env_id != probe.env_id:
                raise Failed(f"env_id is {table['env_id']!r}, of the environment itself {probe.env.env_id!r}",
                             f"an instance keeps its own: {probe.env_id!r}")  # fmt: skip
            if table["frame_no"] != 0:
                probe.note("6.2.3.1-T1.frame_no", "frame_no goes on over resets; here each episode begins at 0")
            if "error" in table.get("extra_info", {}):
                raise Failed("extra_info of a reset has an error, and no action came before")
            if is_over(table):
                probe.note("6.2.2.1-1", "an episode may be over with its first frame")

    @check("plain reset", "reset works without options", "6.2.2.1-2", "reset")
    def plain_reset(self, probe: Probe) -> None:
        check_observation(probe.reset_with(), probe.env.observation, probe.note)
        check_observation(probe.reset_with({}), probe.env.observation, probe.note)

    @check("unknown option", "a reset option that the description lacks is refused", "contract")
    def unknown_option(self, probe: Probe) -> None:
        try:
            probe.reset_with({"no_such_option": 1})
        except ValueError:
            return
        except Exception as error:
            probe.note("contract", f"an unknown option raises {type(error).__name__}; here it is ValueError")
            return
        listed = probe.described("reset_options")
        if listed:
            raise Failed("reset ignored the option 'no_such_option'",
                         f"the description lists {', '.join(map(str, listed))}; others raise ValueError")  # fmt: skip
        probe.note("contract", "an unknown reset option is ignored, so a misspelt name goes unnoticed")

    @check("inference", "privileged state can't be reached in inference", "6.2.3.1-5", "reset")
    def inference(self, probe: Probe) -> None:
        mode = getattr(getattr(probe.env, "world", None), "mode", getattr(probe.env, "mode", None))
        if mode != "inference":
            raise NotTried("the environment is not opened for inference")
        tables = [probe.reset(), *(frame.table for frame in probe.walk(_TO_THE_END))]
        with suppress(Exception):  # how it is refused, other checks look at
            tables.append(probe.step({"env_id": probe.env.env_id, "frame_no": probe.reset()["frame_no"]})[0])
        for table in tables:
            if holds(table.get("extra_info", {}), "state"):
                raise Failed("extra_info has 'state'", "opened for inference, privileged state is absent")

    @check(
        "after the end",
        "a step after the end is refused, and a reset begins anew",
        "contract",
        "error passes",
        "extremes",
    )
    def after_the_end(self, probe: Probe) -> None:
        if probe.out_of_turn is not None:
            raise probe.out_of_turn
        first = probe.reset()
        if is_over(first):
            raises(
                probe,
                lambda: probe.send(first, _any_action(probe)),
                "a step after a reset whose flags say an end",
                first,
            )
        frames = probe.walk(MAX_FRAMES)
        if not frames or not is_over(frames[-1].kept):
            raise NotTried(f"no episode ended within {len(frames)} frames")
        check_over(probe, frames[-1])
        self._check_next_first(probe, frames[-1])

    def _check_next_first(self, probe: Probe, last: Frame) -> None:
        """Begin the next episode, whose first frame is no last one of the episode before."""
        table, number = probe.reset_with({}), 0
        check_observation(table, probe.env.observation)
        while not difference(last.observation, table["observation"]):
            frames, number = probe.walk(MAX_FRAMES, seed=probe.seed + number + 1), number + 1
            if number > 2:
                raise Failed("the last frame of each episode shows the first observation of the next one",
                             "it is what the last action led to")  # fmt: skip
            if not frames or not is_over(frames[-1].kept) or not difference(last.observation, frames[-1].observation):
                return  # a world of few states
            last, table = frames[-1], probe.reset_with({})


class _Ending:
    def __init__(self, probe: Probe, left: Leftovers) -> None:
        self._probe, self._left = probe, left

    @check("closed", "close may be called twice, and no step or reset follows it", "contract", "reset")
    def closed(self, probe: Probe) -> None:
        table = probe.reset()
        probe.close()
        probe.close()
        raises(probe, lambda: probe.send(table, _any_action(probe)), "a step after close")
        raises(probe, probe.reset, "a reset after close")

    @check("left", "no thread and no file is left after the run", "contract", "leftovers")
    def left(self, probe: Probe) -> None:
        if getattr(self._probe.env, "is_recorded", False):
            raise NotTried("the environment records, and records stay")
        names = self._left.variables()
        if names:
            self._probe.note("contract", f"the process has new environment variables: {', '.join(names)}")
        problem = self._left.problem()
        if problem:
            raise Failed(problem, "close releases everything", how="the whole run, then close")


def _any_action(probe: Probe) -> dict[str, np.ndarray]:
    return probe.env.action.sample(np.random.default_rng(probe.seed))
