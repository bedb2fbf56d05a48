"""Drive an environment through seeded walks of legal actions, for the checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from hal import EpisodeError, Field, Spec
from rlenv_kit.report import Failed, Note, NotTried
from rlenv_kit.supervisor import CallLog, Deadlines
from rlenv_kit.table_audit import TableAudit
from rlenv_kit.tables import (
    ALWAYS,
    STANDARD_CODES,
    copied_values,
    deep_difference,
    difference,
    error_of,
    is_over,
)
from rlenv_robot.env import Environment
from rlenv_robot.tables import step_extra_of

__all__ = [
    "ALWAYS", "COMPARED", "Action", "Chooser", "Frame", "Probe", "StandardEnvironment", "Table", "at_random",
    "check_over", "draws", "error_of", "frame_difference", "frame_of", "is_over", "raises", "refused_entry",
]  # fmt: skip

_MAX_TRIES = 1000
"""Random actions that a game may refuse, by its own rules, before the probe gives up."""

_WITHOUT_SEED = 400
"""Frames that are compared to see whether episodes repeat themselves."""

COMPARED = ("agents", "agent", "applied", "state", "messages", "action_mask")
"""Keys of ``extra_info`` that must be equal in repeated episodes; other keys may hold times."""

Table = Mapping[str, Any]

Action = Mapping[str, np.ndarray]

Chooser = Callable[[Spec, np.random.Generator, int], Action]
"""Take the action's spec, the walk's random generator and the step's number; return an action within the spec."""


class StandardEnvironment(Protocol):
    """Declare the interfaces of the standard's environment, with the specs of its tables."""

    env_id: str

    @property
    def observation(self) -> Spec:
        """The spec of ``observation`` in Table 1."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of ``action`` in Table 2."""
        ...

    def reset(self, options: Mapping[str, object] = ...) -> Mapping[str, Any]:
        """Begin an episode (clause 6.2.2.1)."""
        ...

    def step(
        self, action: Mapping[str, object], extra_info: Mapping[str, object] = ...
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Carry out an action (clause 6.2.2.2)."""
        ...

    def close(self) -> None:
        """Close the environment. Safe to call more than once."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """An action, and the tables that the environment returned for it.

    Attributes:
        action: the action as it was sent.
        table: Table 1, as it was returned.
        reward: Table 3, as it was returned.
        observation: a copy of the observation, made on return.
        kept: a copy of Table 1, made on return.
        kept_reward: a copy of the reward in Table 3, made on return.
    """

    action: Action
    table: Table
    reward: Table
    observation: Mapping[str, np.ndarray]
    kept: Table
    kept_reward: Any


def frame_of(action: Action, table: Table, reward: Table) -> Frame:
    """Return a frame with copies of its tables as they are now."""
    kept = copied_values(table)
    return Frame(action, table, reward, kept["observation"], kept, copied_values(reward["reward"]))


def at_random(spec: Spec, rng: np.random.Generator, step: int) -> Action:
    """Draw an action uniformly; it is a `Chooser`."""
    return spec.sample(rng)


def _nothing(table: Table) -> None:
    """Do nothing between two frames."""


class Probe:
    """Drive an environment under test: reset it, step it, and keep its answers.

    Args:
        env: the environment under test.
        steps: the usual length of a walk; checks of late frames walk further.
        seed: the seed of the resets and of the walks' actions.
        repeatable: whether equal seeds must give equal episodes; False on a real machine.
        deadlines: limits on the calls.
        log: records the calls; by default a new log.

    Attributes:
        audit: judges every table that the environment returns.
        steady: keys of ``extra_info``, besides `COMPARED`, whose values are equal in repeated episodes.
        out_of_turn: the first step that was accepted after the end of a walk; None if all were refused.
    """

    def __init__(
        self,
        env: StandardEnvironment,
        steps: int,
        seed: int,
        repeatable: bool,
        deadlines: Deadlines | None = None,
        log: CallLog | None = None,
    ) -> None:
        if isinstance(env, Environment):
            env.check_outputs = 0  # the checks judge what the world itself returns
        self.env, self.steps, self.seed, self.repeatable = env, steps, seed, repeatable
        self.log = log or CallLog(deadlines or Deadlines())
        self.seeded, self._has_reset = True, False
        self.env_id = env.env_id
        self._spent_s: Callable[[], float] | None = getattr(env, "spent_s", None)
        self.state_before: dict[str, object] = {}
        self.steady: frozenset[str] = frozenset()
        self.out_of_turn: Failed | None = None
        self._notes: dict[tuple[str, str], Note] = {}
        # What a step must be given beside the action: the same legal values in every step.
        required = step_extra_of(getattr(env, "world", env)).required
        self.extra = (required.sample(np.random.default_rng(seed)),) if len(required) else ()
        self.audit = TableAudit(lambda: self.env.observation, self.declared_reward, self.described("extra_info"),
                                self.check_code, self.note,
                                hasattr(getattr(env, "world", None), "foreign"))  # fmt: skip

    # -- notes, descriptions -------------------------------------------------------------------------------

    def note(self, clause: str, text: str) -> None:
        """Record a remark on something that the standard leaves open, once."""
        self._notes.setdefault((clause, text), Note(clause, text))

    @property
    def notes(self) -> tuple[Note, ...]:
        """The remarks made so far."""
        return tuple(self._notes.values())

    @property
    def declared_reward(self) -> Field | None:
        """The reward's description, if the environment has one."""
        reward = getattr(getattr(self.env, "description", None), "reward", None)
        return reward if isinstance(reward, Field) else None

    def described(self, key: str) -> Mapping[str, object]:
        """Return a mapping under a key of the environment's description; empty if there is none."""
        entries = getattr(getattr(self.env, "description", None), key, {})
        return entries if isinstance(entries, Mapping) else {}

    def clock(self) -> float:
        """Return the time by which walks are limited, in seconds.

        In simulation that is the processor time of this process and of a program under test, so that a busy machine
        doesn't shorten walks. For a real machine it is the monotonic clock.
        """
        if not self.repeatable:
            return time.monotonic()
        return time.process_time() + (self._spent_s() if self._spent_s else 0.0)

    # -- calls ---------------------------------------------------------------------------------------------

    def seed_option(self, seed: int | None = None) -> dict[str, object]:
        """Return the option of a seed, by default the probe's; none where the environment takes no seed."""
        return {"seed": self.seed if seed is None else seed} if self.seeded else {}

    def reset(self, seed: int | None = None) -> Table:
        """Reset the environment with a seed, by default the probe's; send none if the description lists no seed."""
        if not self.seeded:
            return self.reset_with({})
        try:
            table = self.reset_with({"seed": self.seed if seed is None else seed})
        except ValueError:
            if self._has_reset or "seed" in self.described("reset_options"):
                raise
            self.seeded = False
            self.repeatable = self.repeatable and self._repeats()
            told = "its episodes repeat themselves" if self.repeatable else "no episode can be repeated"
            self.note("6.2.2.1-3", f"it takes no seed, and describes none; {told}")
            table = self.reset_with({})
        self._has_reset = True
        return table

    def _repeats(self) -> bool:
        """Return whether episodes of equal actions are equal without a seed, as in a world without chance."""
        first, *others = [self.walk(_WITHOUT_SEED) for _ in range(3)]
        return not any(
            len(first) != len(other) or any(map(frame_difference, first, other)) for other in others
        )  # fmt: skip

    def reset_with(self, *options: object) -> Table:
        """Reset the environment with these options, or without any."""
        sent = self.audit.sent(*options)
        self.audit.lost()
        table: Table = self.log.call("reset", self.env.reset, *options)
        self.audit.began(table, sent, any("seed" in copy for _, copy in sent))
        return table

    def step(self, request: object) -> tuple[Table, Table]:
        """Send Table 2, or any other value in its place."""
        sent = self.audit.sent(request)
        answer = self.log.call("step", self.env.step, request, *self.extra)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise Failed(f"step returned {answer!r:.80}", "it must return two tables, 1 and 3")
        table, reward = answer
        for name, part, key in (("Table 1", table, "observation"), ("Table 3", reward, "reward")):
            if not isinstance(part, Mapping) or key not in part:
                raise Failed(f"{name} is {part!r:.80}", f"it must be a mapping with {key!r}")
        self.audit.stepped(request, table, reward, sent)
        return table, reward

    def send(self, table: Table, action: object) -> tuple[Table, Table]:
        """Answer a Table 1 with an action, sent as Table 2."""
        return self.step({"env_id": self.env.env_id, "frame_no": table["frame_no"], "action": action})

    def close(self) -> None:
        """Close the environment."""
        self.log.call("close", self.env.close)

    # -- walks ---------------------------------------------------------------------------------------------

    def legal_step(self, table: Table, rng: np.random.Generator, step: int = 0, choose: Chooser = at_random) -> Frame:
        """Send legal actions until the environment accepts one, since a game may refuse many.

        Raises:
            Failed: no action was accepted, or one was refused as if it contradicted the description.
        """
        for attempt in range(_MAX_TRIES):
            action = choose(self.env.action, rng, step) if attempt < 3 else self.env.action.sample(rng)
            answer, reward = self.send(table, action)
            error = error_of(answer)
            if error is None:
                return frame_of(action, answer, reward)
            self._check_kept(table, answer)
            if isinstance(error, Mapping) and error.get("code") in STANDARD_CODES:
                raise Failed(f"an action that the description allows was refused: {error}",
                             "a rule of the world has its own code")  # fmt: skip
            self.check_code(error)
        raise Failed(
            f"none of {_MAX_TRIES} random actions within the description was accepted; the last error: {error}"
        )

    def check_code(self, error: Any) -> None:
        """Check that the code of an error is described, if the description lists codes."""
        codes, code = self.described("error_codes"), error.get("code") if isinstance(error, Mapping) else None
        if codes and isinstance(code, str) and code not in {*codes, *STANDARD_CODES}:
            raise Failed(f"an error has the code {code!r}", f"the description lists {', '.join(map(str, codes))}")

    @staticmethod
    def _check_kept(before: Table, after: Table) -> None:
        """Check that an action which a rule of the world refused left the frame as it was."""
        for key in ("frame_no", "terminated", "truncated"):
            if after.get(key) != before[key]:
                raise Failed(f"an action was refused, and {key} is {after.get(key)!r} where it was {before[key]!r}",
                             "an illegal action is not carried out")  # fmt: skip
        name = difference(before["observation"], after["observation"])
        if name:
            raise Failed(f"an action was refused, and the observation's {name} changed",
                         "an illegal action is not carried out")  # fmt: skip
        key = refused_entry(before.get("extra_info", {}), after.get("extra_info", {}))
        if key:
            raise Failed(f"an action was refused, and its table has another {key!r} than the frame before",
                         "nothing is carried out, and no message is sent")  # fmt: skip

    def walk(
        self,
        steps: int | None = None,
        between: Callable[[Table], None] = _nothing,
        *,
        seed: int | None = None,
        choose: Chooser = at_random,
        budget_s: float = 20.0,
    ) -> list[Frame]:
        """Reset, and send legal actions until the episode ends.

        Args:
            steps: maximum length; by default the probe's.
            between: called with each table before the next action, to disturb the episode.
            seed: the seed of the reset and the actions; by default the probe's.
            choose: chooses the actions.
            budget_s: time by `clock` after which the walk is cut short, seconds.
        """
        seed = self.seed if seed is None else seed
        end = self.clock() + budget_s
        rng, table, frames = draws(seed), self.reset(seed), []
        for step in range(self.steps if steps is None else steps):
            if is_over(table) or self.clock() > end:
                break
            between(table)
            frames.append(self.legal_step(table, rng, step, choose))
            table = frames[-1].table
        return frames

    def repeat(
        self,
        frames: Sequence[Frame],
        between: Callable[[Table], None] = _nothing,
        *,
        seed: int | None = None,
        request: Callable[[Table, Action], object] | None = None,
        first: Callable[[], Table] | None = None,
    ) -> list[Frame]:
        """Reset with the seed, and send the actions of an earlier walk.

        Args:
            frames: the earlier walk.
            between: called with each table before the next action.
            seed: the seed of the reset; by default the probe's.
            request: makes Table 2 from a frame and an action; by default as `send` does.
            first: called in place of `reset`.
        """
        table = first() if first is not None else self.reset(seed)
        again: list[Frame] = []
        for number, frame in enumerate(frames, 1):
            between(table)
            action = {name: np.array(value) for name, value in frame.action.items()}
            answer, reward = self.send(table, action) if request is None else self.step(request(table, action))
            error = error_of(answer)
            if error is not None:
                raise Failed(f"frame {number}: the action was refused ({error}), it was accepted before")
            again.append(frame_of(frame.action, answer, reward))
            table = again[-1].table
            if is_over(table) and number < len(frames):
                raise Failed(f"the episode has {number} frames, it had {len(frames)} or more")
        return again

    def compare(
        self, first: Sequence[Frame], second: Sequence[Frame], reason: str = "", also: Collection[str] = ()
    ) -> None:
        """Check that two walks are equal.

        Args:
            first: a walk.
            second: a walk of the same actions.
            reason: what happened between the walks, for the message.
            also: keys of ``extra_info`` that are compared besides `COMPARED`.

        Raises:
            NotTried: the environment isn't repeatable.
            Failed: the walks differ.
        """
        if not self.repeatable:
            raise NotTried("equal seeds need not give equal episodes here")
        for number, (before, after) in enumerate(zip(first, second, strict=False), 1):
            problem = frame_difference(before, after, also)
            if problem:
                raise Failed(f"frame {number}: {problem}" + (f" {reason}" if reason else ""))
        if len(first) != len(second):
            raise Failed(f"the episode has {len(second)} frames, it had {len(first)}" + f" {reason}".rstrip())


def draws(seed: int) -> np.random.Generator:
    """Return the generator of a walk's actions, which are not the numbers that an environment draws by this seed."""
    return np.random.default_rng([seed, 6])


def raises(probe: Probe, call: Callable[[], object], event: str, last: Table | None = None) -> None:
    """Check that a call in the wrong state is refused.

    Args:
        probe: takes notes.
        call: to make.
        event: the call in words.
        last: the last frame's Table 1; an answer that repeats it with an error is a refusal too.
    """
    try:
        answer = call()
    except EpisodeError:
        return
    except Exception as error:
        probe.note("contract", f"{event} raises {type(error).__name__}; here it is EpisodeError")
        return
    if isinstance(answer, tuple) and last is not None:
        table = answer[0]
        same = table.get("frame_no") == last["frame_no"] and not difference(last["observation"], table["observation"])
        if error_of(table) is not None and same:
            probe.note("contract", f"{event} is answered with an error; here it raises EpisodeError")
            return
    raise Failed(f"{event} was accepted", "it must raise EpisodeError")


def check_over(probe: Probe, last: Frame, others: int = 20) -> None:
    """Check that further steps are refused after an episode's last frame.

    Args:
        probe: stepped the episode to its end.
        last: the last frame.
        others: number of random actions that are tried besides the last one.

    Raises:
        Failed: a step was accepted.
    """
    for _ in range(2):
        raises(probe, lambda: probe.send(last.table, last.action), "a step after the end", last.kept)
    rng = np.random.default_rng(probe.seed)
    for _ in range(others):  # the rules of a world may refuse some of them
        action = probe.env.action.sample(rng)
        raises(probe, partial(probe.send, last.table, action), "a step after the end", last.kept)


def refused_entry(told: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return a key of ``extra_info`` that a refusal shows otherwise than the frame before it; empty if none.

    Args:
        told: ``extra_info`` of the frame before.
        now: ``extra_info`` of the refusal.
    """
    for key in ALWAYS:
        if key in told and (key not in now or deep_difference(told[key], now[key], "value")):
            return key
    for key in (key for key in COMPARED if key in now):
        sends = key == "messages" and isinstance(now[key], Mapping) and any(map(_is_some, now[key].values()))
        if (key in told or sends) and deep_difference(told.get(key, {}), now[key], "value"):
            return key
    return ""


def _is_some(inbox: object) -> bool:
    return not isinstance(inbox, Mapping | list | tuple | str) or len(inbox) > 0


def frame_difference(before: Frame, after: Frame, also: Collection[str] = ()) -> str:
    """Describe the difference between two frames; empty if they are equal."""
    name = difference(before.observation, after.observation)
    if name:
        return f"{name} is {after.observation.get(name)}, it was {before.observation.get(name)}"
    if deep_difference(before.kept_reward, after.kept_reward, "reward"):
        return f"reward is {after.kept_reward}, it was {before.kept_reward}"
    for key in ("terminated", "truncated"):
        if before.kept[key] != after.kept[key]:
            return f"{key} is {after.kept[key]}, it was {before.kept[key]}"
    extras = [
        {key: value for key, value in frame.kept.get("extra_info", {}).items() if key in COMPARED or key in also}
        for frame in (before, after)
    ]
    place = deep_difference(extras[0], extras[1], "extra_info")
    return f"{place} differs" if place else ""
