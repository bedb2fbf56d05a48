"""Read Tables 2, 5 and 6 of a source-data environment, and check their form (R2, R3.3 to R3.5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rlenv_kit.report import Failed
from rlenv_kit.tables import Noter, Unchecked, check_keys, field_names, is_int32, silent

__all__ = [
    "Layout", "Step", "Trajectory", "check_agents", "discount_of", "layout_of", "packed", "read_actions", "read_steps",
    "read_trajectory",
]  # fmt: skip

_TABLE_2 = frozenset({"env_id", "frame_no", "action"})
_TABLE_5 = frozenset({"env_id", "frame_no", "observation", "action", "reward"})
_TABLE_5_OPTIONAL = ("next_observation", "done", "extra_info")
_TABLE_6 = frozenset({"env_id", "trajectory_id", "steps_set"})

_CLOSE = 1e-6
"""Relative difference up to which a sum of rewards counts as equal to another."""

Values = Mapping[str, np.ndarray]

Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Field, such as ``action.push`` -> dtype and shape of one value; see `layout_of`."""


def packed(values: Values) -> bytes:
    """Return a structure as bytes, which are equal for equal values, whatever their dtype or the width of a text."""
    return b"".join(name.encode() + b"\0" + _bytes(np.asarray(values[name])) for name in sorted(values))


def _packed_rows(values: Values, count: int) -> list[bytes]:
    """Return what `packed` returns of each row of values with a leading axis."""
    rows = [bytearray() for _ in range(count)]
    for name in sorted(values):
        value, head = np.asarray(values[name]), name.encode() + b"\0"
        if value.dtype.kind in "biuf":
            flat = np.ascontiguousarray(value, float).reshape(count, -1) + 0.0
            data, size = flat.tobytes(), 8 * flat.shape[1]
            for place, row in enumerate(rows):
                row += head + data[size * place : size * (place + 1)]
        else:
            for place, row in enumerate(rows):
                row += head + _bytes(np.asarray(value[place]))
    return list(map(bytes, rows))


def _bytes(value: np.ndarray) -> bytes:
    if value.dtype.kind in "biuf":
        return (value.astype(float) + 0.0).tobytes()  # so that -0 is 0
    return "\0".join(map(str, value.ravel().tolist())).encode()


def layout_of(batch: Unchecked) -> Layout:
    """Return dtype and shape of the fields of a batch, Table 5 or Table 2; those of lists, which have none, are absent.

    Texts of any width have one dtype.
    """
    table, skipped = (batch, 1) if isinstance(batch, Mapping) else (batch[0], 0)
    return {
        f"{group}.{name}": ("text" if value.dtype.kind in "USO" else value.dtype.name, value.shape[skipped:])
        for group in ("observation", "action", "next_observation")
        if isinstance(fields := table.get(group), Mapping)
        for name, value in fields.items() if isinstance(value, np.ndarray | np.generic)
    }  # fmt: skip


def discount_of(batch: Unchecked) -> float | None:
    """Return the discount of one step by a batch of single steps; None if it tells none."""
    extra = batch.get("extra_info") if isinstance(batch, Mapping) else None
    told = np.asarray(extra.get("discount") if isinstance(extra, Mapping) else None)
    factors = np.unique(told[told > 0]) if told.dtype.kind == "f" else told
    return float(factors[0]) if told.dtype.kind == "f" and len(factors) == 1 else None


@dataclass(frozen=True, slots=True)
class Step:
    """One Table 5 of a batch.

    Attributes:
        env_id: as in the table.
        frame_no: as in the table.
        observation: field -> values without a leading axis.
        action: field -> values without a leading axis.
        reward: a number, or one for each agent.
        next_observation: as ``observation``; None where the table has none.
        done: 0 or 1; None where the table has none.
        episode: the number of the episode in ``extra_info``, or None.
        content: all values of the step, as bytes.
    """

    env_id: str
    frame_no: int
    observation: Values
    action: Values
    reward: float | Mapping[str, float]
    next_observation: Values | None
    done: int | None
    episode: int | None
    content: bytes


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One Table 6: a trajectory and its steps.

    Attributes:
        env_id: as in the table.
        trajectory_id: as in the table.
        steps: the steps of ``steps_set``, in order of time.
        extra_info: as in the table; empty if there is none.
    """

    env_id: str
    trajectory_id: int
    steps: tuple[Step, ...]
    extra_info: Mapping[str, Unchecked]

    @property
    def key(self) -> tuple[str, int]:
        """Its ``env_id`` and ``trajectory_id``."""
        return self.env_id, self.trajectory_id

    @property
    def total(self) -> float:
        """The sum of the rewards, over all agents if there are several."""
        return sum(sum(s.reward.values()) if isinstance(s.reward, Mapping) else s.reward for s in self.steps)

    @property
    def is_gapless(self) -> bool:
        """Whether no step is missing between its first and its last one, as far as it tells."""
        span = self.steps[-1].frame_no - self.steps[0].frame_no
        return span == len(self.steps) - 1 and not self.extra_info.get("lost")


def read_steps(batch: object, size: int | None = None, note: Noter = silent) -> list[Step]:
    """Return the steps of a batch: one Table 5 with a leading axis in each value, or a sequence of Tables 5.

    Args:
        batch: as the source returned it.
        size: number of steps that were requested; None allows any number.
        note: takes remarks.

    Raises:
        Failed: the batch has neither form, or another number of steps.
    """
    if isinstance(batch, Mapping):
        return _of_columns(batch, size, note)
    if not isinstance(batch, Sequence) or isinstance(batch, str | bytes):
        raise Failed(f"a batch is a {type(batch).__name__}", "it must be Table 5 with a leading axis, or a list of it")
    note("6.3.2.2-4", "a batch is a list of Tables 5; here it is one Table 5 whose values have a leading axis")
    if size is not None and len(batch) != size:
        raise Failed(f"{len(batch)} steps came, {size} were asked for")
    return [step for row in batch for step in _of_columns(_with_axis(row), 1, note)]


def _with_axis(value: Unchecked) -> Unchecked:
    """Return a single Table 5 with a leading axis of one."""
    if isinstance(value, Mapping):
        return {key: _with_axis(item) for key, item in value.items()}
    return np.asarray(value)[None] if isinstance(value, np.ndarray | np.generic) else [value]


def _of_columns(batch: Mapping[str, Unchecked], size: int | None, note: Noter) -> list[Step]:
    table = check_keys(batch, _TABLE_5, _TABLE_5_OPTIONAL, "Table 5")
    if "extra_info" in table:
        note("6.3.3.1-T5", "Table 5 carries extra_info beside the standard's own keys")
    ids = table["env_id"]
    if isinstance(ids, str) or not isinstance(ids, Sequence | np.ndarray):
        raise Failed(f"env_id is {ids!r:.60}", "a batch has one env_id for each step")
    count = len(ids) if size is None else size
    if len(ids) != count:
        raise Failed(f"{len(ids)} steps came, {count} were asked for")
    for name in ids:
        if not isinstance(name, str) or not 1 <= len(name) <= 36:
            raise Failed(f"env_id is {name!r}", "Table 5 requires a string of 1 to 36 characters")
    frames = _whole("frame_no", table["frame_no"], count, note)
    observation = _fields("observation", table["observation"], count)
    action = _fields("action", table["action"], count)
    following: Unchecked = None
    if "next_observation" in table:
        following = _fields("next_observation", table["next_observation"], count)
        _check_alike(observation, following)
    done: list[int | None] = [None] * count
    if "done" in table:
        done = [*_whole("done", table["done"], count, note)]
        wrong = [flag for flag in done if flag not in (0, 1)]
        if wrong:
            raise Failed(f"done is {wrong[0]}", "Table 5 requires the int32 0 or 1")
    _check_axes(table.get("extra_info"), count, "extra_info")
    _check_flags(table.get("extra_info"), done)
    episodes = _episodes(table.get("extra_info"), count)
    rewards = _rewards(table["reward"], count)
    heads = [f"{ids[row]}\0{frames[row]}\0{rewards[row]!r}\0{done[row]}\0".encode() for row in range(count)]
    parts = [_packed_rows(observation, count), _packed_rows(action, count), _packed_rows(following or {}, count)]
    contents = [b"\1".join(each) for each in zip(heads, *parts, strict=True)]
    return [
        Step(str(ids[row]), frames[row], _row(observation, row), _row(action, row), rewards[row],
             None if following is None else _row(following, row), done[row], episodes[row], contents[row])
        for row in range(count)
    ]  # fmt: skip


def _check_axes(extra: Unchecked, count: int, place: str) -> None:
    """Check that arrays of numbers in ``extra_info`` have one entry for each step."""
    for name, value in extra.items() if isinstance(extra, Mapping) else ():
        if isinstance(value, Mapping):
            _check_axes(value, count, f"{place}.{name}")
        elif isinstance(value, np.ndarray) and value.ndim and len(value) != count:
            raise Failed(
                f"{place}.{name} has shape {value.shape}", f"its leading axis must be {count}, one for each step"
            )


def _check_flags(extra: Unchecked, done: list[int | None]) -> None:
    """Check ``done`` against the kinds of end in ``extra_info``, where both are there."""
    if not isinstance(extra, Mapping) or None in done or not {"terminated", "truncated"} <= extra.keys():
        return
    ended = np.asarray(extra["terminated"], bool) | np.asarray(extra["truncated"], bool)
    if ended.shape != (len(done),):
        return
    terminated, factors = np.asarray(extra["terminated"], bool), np.asarray(extra.get("discount"))
    if factors.shape == ended.shape and factors.dtype.kind == "f" and factors.any():
        wrong = np.flatnonzero(terminated != (factors == 0))
        if len(wrong):
            raise Failed(f"the discount of step {int(wrong[0])} is {factors[wrong[0]]:g}, and it is "
                         f"{'terminated' if terminated[wrong[0]] else 'not terminated'}",
                         "it is 0 where a step terminated its episode, and nowhere else")  # fmt: skip
    wrong = np.flatnonzero(ended != np.asarray(done, bool))
    if len(wrong):
        raise Failed(f"done of step {int(wrong[0])} is {done[int(wrong[0])]}, its extra_info says otherwise",
                     "done is 1 where a step terminated or truncated its episode, and 0 elsewhere")  # fmt: skip


def _episodes(extra: Unchecked, count: int) -> list[int | None]:
    """Return the numbers of the episodes that steps are of, where ``extra_info`` tells them."""
    told = np.asarray(extra.get("episode")) if isinstance(extra, Mapping) else np.zeros(())
    if told.shape != (count,) or told.dtype.kind not in "iu":
        return [None] * count
    return [int(number) for number in told]


def _row(values: Values, row: int) -> dict[str, np.ndarray]:
    return {name: value[row] for name, value in values.items()}


def _whole(name: str, value: Unchecked, count: int, note: Noter) -> list[int]:
    array = np.asarray(value)
    if array.dtype == bool and name == "done":
        note("6.3.3.1-T5.done", "done is True or False; Table 5 describes an int32")
        array = array.astype(np.int32)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise Failed(f"{name} is {array.dtype} of shape {array.shape}", f"it must be {count} whole numbers (int32)")
    if isinstance(value, np.ndarray) and array.dtype != np.int32 and not (name == "done" and value.dtype == bool):
        raise Failed(f"{name} is of {value.dtype}", "the standard requires an int32")
    if array.dtype != np.int32:
        note("6.3.3.1-T5", f"{name} is {array.dtype}; the standard describes an int32")
    numbers: list[int] = array.tolist()
    for number in numbers:
        if not is_int32(number):
            raise Failed(f"{name} is {number}", "the standard requires an int32")
    return numbers


def _fields(name: str, values: Unchecked, count: int) -> dict[str, np.ndarray]:
    if not isinstance(values, Mapping) or not values:
        raise Failed(f"{name} is {values!r:.60}", "it must be a structure: name -> values with a leading axis")
    arrays = {key: _column(value) for key, value in values.items()}
    for key, array in arrays.items():
        if array.shape[:1] != (count,):
            raise Failed(
                f"{name}.{key} has shape {array.shape}", f"its leading axis must be {count}, one for each step"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Failed(f"{name}.{key} has a value that is not finite")
    return arrays


def _column(value: Unchecked) -> np.ndarray:
    """Return values as an array; those of a list are float64, since its numbers may be whole in one batch alone."""
    array = np.asarray(value)
    return array.astype(float) if array.dtype.kind in "iu" and not isinstance(value, np.ndarray) else array


def _check_alike(observation: Values, following: Values) -> None:
    if observation.keys() != following.keys():
        raise Failed(f"next_observation has the fields {sorted(following)}", f"observation has {sorted(observation)}")
    for name, value in observation.items():
        texts = value.dtype.kind == following[name].dtype.kind == "U"  # each as wide as its longest one
        if value.shape != following[name].shape or (not texts and value.dtype != following[name].dtype):
            raise Failed(
                f"next_observation.{name} is {following[name].dtype} of shape {following[name].shape}",
                f"observation.{name} is {value.dtype} of shape {value.shape}",
            )


def _rewards(value: Unchecked, count: int) -> list[Unchecked]:
    if isinstance(value, Mapping):
        if not value:
            raise Failed("reward maps no agent to a number")
        columns = {agent: _rewards(numbers, count) for agent, numbers in value.items()}
        return [{agent: numbers[row] for agent, numbers in columns.items()} for row in range(count)]
    array = np.asarray(value)
    if array.shape != (count,) or array.dtype.kind not in "fiu":
        raise Failed(
            f"reward is {array.dtype} of shape {array.shape}", f"it must be {count} numbers, one for each step"
        )
    numbers: list[float] = array.astype(float).tolist()
    wrong = [number for number in numbers if not math.isfinite(number)]
    if wrong:
        raise Failed(f"reward is {wrong[0]}", "it must be a finite number")
    return numbers


# -- trajectories ----------------------------------------------------------------------------------------------


def read_trajectory(table: object, note: Noter = silent) -> Trajectory:
    """Return a Table 6 as a trajectory of consecutive steps.

    Args:
        table: as the source returned it.
        note: takes remarks.

    Raises:
        Failed: the value is not a Table 6, or its steps contradict one another.
    """
    entries = check_keys(table, _TABLE_6, ("extra_info",), "Table 6")
    if "extra_info" in entries:
        note("6.3.3.2-T6", "Table 6 carries extra_info beside the standard's own keys")
    name, number = entries["env_id"], entries["trajectory_id"]
    if not isinstance(name, str) or not 1 <= len(name) <= 36:
        raise Failed(f"env_id is {name!r}", "Table 6 requires a string of 1 to 36 characters")
    if not is_int32(number):
        raise Failed(f"trajectory_id is {number!r}", "Table 6 requires an int32")
    steps, extra = read_steps(entries["steps_set"], None, note), entries.get("extra_info", {})
    if not isinstance(extra, Mapping):
        raise Failed(f"extra_info is a {type(extra).__name__}", "it must be a structure")
    if not steps:
        raise Failed(f"trajectory {number} has no steps")
    trajectory = Trajectory(name, int(number), tuple(steps), extra)
    for problem in (*_breaks(trajectory), *_wrong_facts(trajectory), *_other_facts(extra, entries["steps_set"])):
        raise Failed(f"trajectory {number}: {problem}")
    return trajectory


def _breaks(trajectory: Trajectory) -> Iterator[str]:
    """Yield the places at which steps do not follow one another."""
    for place, step in enumerate(trajectory.steps):
        if step.env_id != trajectory.env_id:
            yield f"step {place} is of env_id {step.env_id!r}, the trajectory of {trajectory.env_id!r}"
    for place, (one, other) in enumerate(pairwise(trajectory.steps)):
        if other.frame_no <= one.frame_no:
            yield f"step {place + 1} has frame_no {other.frame_no} after {one.frame_no}: steps are in order of time"
        if one.done:
            yield f"step {place} is done, and {len(trajectory.steps) - place - 1} steps follow it"
        joined = one.next_observation is not None and other.frame_no == one.frame_no + 1
        if joined and packed(one.next_observation or {}) != packed(other.observation):
            yield f"the next_observation of step {place} is not the observation of step {place + 1}"


def _wrong_facts(trajectory: Trajectory) -> Iterator[str]:
    """Yield the entries of ``extra_info`` that contradict the steps."""
    extra, steps = trajectory.extra_info, trajectory.steps
    length = extra.get("length")
    if isinstance(length, int | np.integer) and length != len(steps):
        yield f"extra_info['length'] is {length}, it has {len(steps)} steps"
    bounds = [int(bound) for key in ("start", "end") if isinstance(bound := extra.get(key), int | np.integer)]
    if len(bounds) == 2 and bounds[1] - bounds[0] != len(steps):
        yield f"extra_info says start {bounds[0]} and end {bounds[1]}, it has {len(steps)} steps: the end is excluded"
    for name, total in _totals(trajectory).items():
        told = extra.get("return")
        told = told.get(name) if isinstance(told, Mapping) else told if name == "" else None
        if isinstance(told, int | float) and not math.isclose(told, total, rel_tol=_CLOSE, abs_tol=_CLOSE):
            yield f"extra_info['return'] is {told}, the sum of the rewards is {total}"
    ended = [extra.get(key) for key in ("terminated", "truncated")]
    if all(ended):
        yield "extra_info says terminated and truncated: an episode has one end"
    if steps[-1].done == 0 and any(ended):
        yield "extra_info says that it ended, and done of its last step is 0"


def _other_facts(extra: Mapping[str, Unchecked], steps: Unchecked) -> Iterator[str]:
    """Yield the kinds of end and the positions that Table 6 and its steps tell differently."""
    last = steps.get("extra_info") if isinstance(steps, Mapping) else steps[-1].get("extra_info")
    if not isinstance(last, Mapping):
        return
    for key in ("terminated", "truncated"):
        if {key} <= extra.keys() & last.keys():
            told = np.ravel(last[key])
            if len(told) and bool(told[-1]) != bool(extra[key]):
                yield f"extra_info[{key!r}] is {extra[key]!r}, that of its last step {told[-1].item()!r}"
    index = np.asarray(last.get("index"))
    if isinstance(extra.get("start"), int | np.integer) and index.dtype.kind in "iu" and index.ndim == 1 and len(index):
        first = int(index[0]) - (0 if isinstance(steps, Mapping) else len(steps) - 1)
        if first != extra["start"]:
            yield f"extra_info['start'] is {extra['start']}, and the index of its first step {first}"


def _totals(trajectory: Trajectory) -> dict[str, float]:
    """Return the sum of the rewards, by agent or under an empty name."""
    totals: dict[str, float] = {}
    for step in trajectory.steps:
        for agent, value in (step.reward if isinstance(step.reward, Mapping) else {"": step.reward}).items():
            totals[agent] = totals.get(agent, 0.0) + value
    return totals


def check_agents(batch: Unchecked, tables: Sequence[Unchecked]) -> None:
    """Check that all tables tell several agents alike: their mapping, and one reward for each.

    Args:
        batch: some Tables 5.
        tables: some Tables 6.

    Raises:
        Failed: a table lacks the mapping that others have, or agents have one reward together.
    """
    extras = [table["extra_info"] for table in tables if isinstance(table.get("extra_info"), Mapping)]
    told = [extra["agents"] for extra in extras if extra.get("agents")]
    returns = {str(agent) for extra in extras if isinstance(extra.get("return"), Mapping) for agent in extra["return"]}
    parts = {"sample_steps": batch, **{f"trajectory {table['trajectory_id']}": table["steps_set"] for table in tables}}
    of_parts: dict[str, Unchecked] = {}
    for words, part in parts.items():
        first = part if isinstance(part, Mapping) else part[0]
        agents = first.get("extra_info", {}).get("agents") if isinstance(first.get("extra_info"), Mapping) else None
        of_parts[words] = agents
        names = returns | _agent_names([agents, *told, *of_parts.values()])
        several = isinstance(first["reward"], Mapping)
        if several and names - first["reward"].keys():
            raise Failed(f"the steps of {words} have no reward of {', '.join(sorted(names - first['reward'].keys()))}",
                         "reward is a dictionary from each agent to its reward")  # fmt: skip
        if isinstance(agents, Mapping) and several and first["reward"].keys() - agents.keys():
            raise Failed(f"the mapping of the agents in the steps of {words} lacks "
                         f"{', '.join(sorted(first['reward'].keys() - agents.keys()))}, who have rewards",
                         "with several agents, extra_info contains the mapping")  # fmt: skip
        for agent, seen in agents.items() if isinstance(agents, Mapping) else ():
            if unknown := [name for name in field_names(seen) if name not in first["observation"]]:
                raise Failed(f"by the mapping in the steps of {words} agent {agent!r} observes {unknown[0]!r}",
                             f"the observation has {', '.join(first['observation'])}")  # fmt: skip
        if not several and len(names) > 1:
            raise Failed(f"the steps of {words} have one reward, and extra_info tells of {', '.join(sorted(names))}",
                         "with several agents, reward is a dictionary from each agent to its reward")  # fmt: skip
        is_in_turns = isinstance(first.get("extra_info"), Mapping) and "agent" in first["extra_info"]
        if (
            several
            and len(first["reward"]) > 1
            and not agents
            and not is_in_turns
            and all(one == told[0] for one in told)
        ):
            raise Failed(f"the steps of {words} have rewards of {', '.join(first['reward'])}, and their extra_info no "
                         "agents", "with several agents, extra_info contains the mapping")  # fmt: skip

    mappings = [agents for agents in of_parts.values() if isinstance(agents, Mapping)]
    if mappings and all(one == mappings[-1] for one in [*mappings[1:], *told]) and mappings[0] != mappings[-1]:
        raise Failed(f"the mapping of the agents is {mappings[0]!r:.100} in sample_steps",
                     f"it is {mappings[-1]!r:.100} in trajectories")  # fmt: skip


def _agent_names(mappings: Sequence[Unchecked]) -> set[str]:
    """Return the names of the agents in mappings; those of others, such as a number of agents, are none."""
    return {str(name) for mapping in mappings if isinstance(mapping, Mapping)
            for name, part in mapping.items() if isinstance(part, Mapping | Sequence)}  # fmt: skip


# -- actions ---------------------------------------------------------------------------------------------------


def read_actions(table: object, note: Noter = silent) -> tuple[str, int, list[Values]]:
    """Return the env_id, the frame_no and the K single actions of a Table 2.

    Args:
        table: as ``get_all_actions`` returned it.
        note: takes remarks.

    Raises:
        Failed: the value is not a Table 2 with K actions.
    """
    entries: Mapping[str, Unchecked] = check_keys(table, _TABLE_2, (), "Table 2")
    name, number = entries["env_id"], entries["frame_no"]
    if not isinstance(name, str) or not 1 <= len(name) <= 36:
        raise Failed(f"env_id is {name!r}", "Table 2 requires a string of 1 to 36 characters")
    if not is_int32(number):
        raise Failed(f"frame_no is {number!r}", "Table 2 requires an int32")
    actions = entries["action"]
    if isinstance(actions, Sequence) and not isinstance(actions, str | bytes):
        note("6.3.2.4-3", "all actions are a list of actions; here an action's fields have a leading axis")
        return name, int(number), [{key: np.asarray(value) for key, value in one.items()} for one in actions]
    if not isinstance(actions, Mapping) or not actions:
        raise Failed(f"action is {actions!r:.60}", "it must be a structure whose values have a leading axis")
    arrays = {key: np.asarray(value) for key, value in actions.items()}
    sizes = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(sizes) != 1 or -1 in sizes:
        raise Failed(f"the fields of action have the leading axes {sorted(sizes)}", "they must have one and the same")
    return name, int(number), [_row(arrays, row) for row in range(sizes.pop())]
