"""Test a batch of environments against its contract: Tables 1 to 3 with a leading axis, row by row (R2, R6.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rlenv_kit.probe import StandardEnvironment
from rlenv_kit.report import Failed, NotTried, Report
from rlenv_kit.supervisor import CallLog, Deadlines, PlannedCheck, Supervisor, Witness, check, declared, in_order
from rlenv_kit.tables import (
    Unchecked,
    check_keys,
    check_observation,
    check_reward,
    copied_values,
    deep_difference,
    difference,
)
from rlenv_kit.vector_probe import (
    StandardVector,
    Table,
    VectorProbe,
    check_rows,
    compare_rows,
    reward_of,
    row_difference,
)

__all__ = ["check_vector"]

_TABLE_1 = frozenset({"env_id", "frame_no", "observation", "terminated", "truncated"})
_TABLE_3 = frozenset({"env_id", "frame_no", "reward"})
_MOST_STEPS = 1200
"""Steps after which a batch is left, whether an episode ended or not."""

_CLOSE = 1e-6
"""Relative difference of two rewards that count as equal: sums over rows may be taken in another order."""


def check_vector(
    make: Callable[[int], StandardVector],
    single: Callable[[], StandardEnvironment] | None = None,
    *,
    num_envs: int = 3,
    steps: int = 30,
    seed: int = 0,
    name: str = "",
    deadlines: Deadlines | None = None,
    only: int | str = 0,
    witness: Witness | None = None,
) -> Report:
    """Test a batch of environments against its contract.

    Args:
        make: makes a batch of N environments that have not been reset.
        single: makes a single environment, which must equal environment 0 of a batch with the same seed; None skips
            that check.
        num_envs: in the batch under test, at least 2.
        steps: the usual length of a walk; to reach the end of an episode, up to 1,200 steps are made.
        seed: seeds all random draws.
        name: the name of the batch in the report; by default the name of its class.
        deadlines: limits on single calls and on the whole run.
        only: number (from 1) or key of the only check to run, after the checks that it needs; 0 runs all.
        witness: receives the progress of the run, for another process.

    Returns:
        The report of all checks. A broken batch raises nothing.

    Raises:
        ValueError: ``num_envs`` is less than 2.
    """
    if num_envs < 2:
        raise ValueError(f"num_envs is {num_envs}, it must be at least 2")
    began = time.monotonic()
    log, probes = CallLog(deadlines or Deadlines(), witness), list[VectorProbe]()
    supervisor = Supervisor(log)

    def prepare() -> list[PlannedCheck]:
        envs = log.call("make", make, num_envs)
        supervisor.close = envs.close
        probes.append(VectorProbe(envs, steps, seed, log))
        (probe,) = probes
        rows, others = _Rows(probe), _Others(probe, make, single)
        return in_order(_ORDER, [*declared(vars(_Rows), rows, probe), *declared(vars(_Others), others, probe)])

    checks = supervisor.run(prepare, only)
    shown = name or (type(probes[0].envs).__name__ if probes else "that was not made")
    notes = tuple(probes[0].notes.values()) if probes else ()
    return Report(f"batch {shown}", checks, notes, time.monotonic() - began, steps=log.steps)


_ORDER = (
    "too early", "reset", "frames", "equal episodes", "rows apart", "unknown option", "refusals", "malformed",
    "ownership", "some", "ends", "inference", "size", "single", "closed",
)  # fmt: skip
"""Keys of the checks by their number, from 1; a new one comes last, since users reproduce findings by number."""


def _named(agents: frozenset[object] | None) -> str:
    return "nobody in particular" if agents is None else ", ".join(sorted(map(str, agents)))


class _Rows:
    """Check the rows of one batch."""

    def __init__(self, probe: VectorProbe) -> None:
        self._probe = probe
        self._agents: tuple[frozenset[object] | None] | None = None

    # -- tables ----------------------------------------------------------------------------------------

    @check("too early", "a step before the first reset is refused", "contract")
    def too_early(self, probe: VectorProbe) -> None:
        table = {"env_id": probe.envs.env_ids, "frame_no": np.zeros(probe.num, np.int32)}
        try:
            probe.step(probe.request(table, probe.actions(1)[0]))
        except Failed:
            raise
        except Exception:
            return
        raise Failed("a step before the first reset was accepted", "it must raise EpisodeError")

    @check("reset", "reset returns Table 1 of all environments", "6.2.2.1-4")
    def reset(self, probe: VectorProbe) -> None:
        for _ in range(2):
            table = probe.reset()
            self._check_table(table)
            if np.asarray(table["frame_no"]).any():
                probe.note("6.2.3.1-T1.frame_no", "frame_no goes on over resets; here each episode begins at 0")

    @check("frames", "each row keeps Tables 1 and 3 up to an episode's end", "6.2.2.2-4 6.2.3.1-T1 6.2.3.3-T3", "reset")
    def frames(self, probe: VectorProbe) -> None:
        table, over = probe.reset(), np.zeros(probe.num, bool)
        for action in probe.actions(_MOST_STEPS):
            before, was_over = np.array(table["frame_no"]), over
            table, reward = probe.step(probe.request(table, action))
            self._check_table(table)
            self._check_rewards(reward, table)
            self._check_agents(reward["reward"], table)
            over = np.asarray(table["terminated"], bool) | np.asarray(table["truncated"], bool)
            wrong = np.flatnonzero((np.asarray(table["frame_no"]) != before + 1) & ~over & ~was_over)
            if "error" not in table.get("extra_info", {}) and len(wrong):
                row = int(wrong[0])
                raise Failed(f"frame_no of row {row} is {int(table['frame_no'][row])} after {int(before[row])}",
                             "each step of an episode adds 1")  # fmt: skip
            if was_over.any() or (over.any() and getattr(probe.envs, "autoreset", "") == "disabled"):
                return
        probe.note(
            "6.2.3.1-T1.terminated", f"no end within {_MOST_STEPS} steps of a batch; later frames were not looked at"
        )

    def _check_table(self, table: Unchecked) -> None:
        probe = self._probe
        check_keys(table, _TABLE_1, ("extra_info",), "Table 1 of a batch")
        names = list(table["env_id"])
        if len(names) != probe.num or len(set(names)) != probe.num:
            raise Failed(f"env_id has {len(set(names))} different names for {probe.num} rows", "each row has its own")
        for key in ("frame_no", "terminated", "truncated"):
            value = table[key]
            if not isinstance(value, np.ndarray) or value.shape != (probe.num,) or value.dtype.kind not in "iu":
                raise Failed(f"{key} is {value!r:.60}", f"it must be {probe.num} whole numbers (int32)")
        for name, value in table["observation"].items():
            if not isinstance(value, np.ndarray) or value.shape[:1] != (probe.num,):
                raise Failed(f"observation.{name} is {value!r:.60}", f"its leading axis must be {probe.num}")
        for row in range(probe.num):
            try:
                check_observation(probe.row(table, row), probe.envs.observation)
            except Failed as finding:
                raise Failed(f"row {row}: {finding}") from finding

    def _check_rewards(self, reward: Unchecked, table: Table) -> None:
        entries: Unchecked = check_keys(reward, _TABLE_3, (), "Table 3 of a batch")
        columns = entries["reward"].values() if isinstance(entries["reward"], Mapping) else [entries["reward"]]
        for column in columns:
            if np.shape(column) != (self._probe.num,):
                raise Failed(f"reward has shape {np.shape(column)}", f"it must be ({self._probe.num},)")
        if not np.array_equal(entries["frame_no"], table["frame_no"]):
            raise Failed(f"frame_no is {entries['frame_no']} in Table 3, and {table['frame_no']} in Table 1")
        for row in range(self._probe.num):
            check_reward({"env_id": entries["env_id"][row], "frame_no": int(entries["frame_no"][row]),
                          "reward": reward_of(entries, row)})  # fmt: skip

    def _check_agents(self, reward: Unchecked, table: Table) -> None:
        """Check that rewards and the agents' own observations are of the same agents in every frame, for all rows."""
        probe, extra = self._probe, table.get("extra_info", {})
        agents = frozenset(reward) if isinstance(reward, Mapping) else None
        if self._agents is None:
            self._agents = (agents,)
        elif self._agents != (agents,):
            raise Failed(f"rewards are of {_named(agents)}", f"they were of {_named(self._agents[0])} before")
        mapping = extra.get("agents")
        if agents is None or (mapping is None and "agent" in extra):
            return
        if not isinstance(mapping, Mapping) or mapping.keys() != agents:
            came = "no mapping" if not isinstance(mapping, Mapping) else f"a mapping of {_named(frozenset(mapping))}"
            raise Failed(f"rewards are of {_named(agents)}, and extra_info['agents'] is {came}",
                         "with several agents it says what each of them observes")  # fmt: skip
        for agent, seen in mapping.items():
            for name, part in seen.items() if isinstance(seen, Mapping) else ():
                if isinstance(part, np.ndarray) and part.shape[:1] != (probe.num,):
                    raise Failed(f"what agent {agent!r} observes as {name!r} has shape {part.shape}",
                                 f"its leading axis must be {probe.num}")  # fmt: skip

    @check("unknown option", "an unknown reset option is refused, or noted", "contract", "reset")
    def unknown_option(self, probe: VectorProbe) -> None:
        try:
            self._probe.log.call("reset", self._probe.envs.reset, {"no_such_option": 1})
        except ValueError:
            return
        except Exception as error:
            self._probe.note("contract", f"an unknown option raises {type(error).__name__}; here it is ValueError")
            return
        self._probe.note("contract", "an unknown reset option is ignored, so a misspelt name goes unnoticed")

    @check("inference", "privileged state can't be reached in inference", "6.2.3.1-5", "frames")
    def inference(self, probe: VectorProbe) -> None:
        mode = getattr(probe.envs, "mode", None)
        if mode != "inference":
            raise NotTried("the batch is not opened for inference")
        for table, _ in probe.walk(probe.actions(5)):
            if "state" in table.get("extra_info", {}):
                raise Failed("extra_info has 'state'", "opened for inference, privileged state is absent")

    # -- rows ------------------------------------------------------------------------------------------

    @check("equal episodes", "equal seeds give equal episodes, and rows differ", "6.2.2.1-3", "frames")
    def equal(self, probe: VectorProbe) -> None:
        actions = probe.actions(probe.length)
        first, again = probe.walk(actions), probe.walk(actions)
        compare_rows(first, again, range(probe.num), "in a second episode of the same seed and actions")
        starts = [probe.row(first[0][0], row)["observation"] for row in range(probe.num)]
        if any(difference(starts[0], other) for other in starts[1:]):
            return
        other = probe.row(probe.log.call("reset", probe.envs.reset, {"seed": probe.seed + 1}), 0)["observation"]
        if difference(starts[0], other):
            raise Failed("all rows begin alike, and with another seed otherwise",
                         "each row draws its own episodes")  # fmt: skip
        probe.note("6.2.2.1-3", "all rows begin alike, whatever the seed")

    @check("rows apart", "an action moves its own row alone", "contract", "equal episodes")
    def apart(self, probe: VectorProbe) -> None:
        actions = probe.actions(probe.length)
        first = probe.walk(actions)
        for row in (0, probe.num - 1):
            changed = [{name: value.copy() for name, value in action.items()} for action in actions]
            rng = np.random.default_rng([probe.seed, 99, row])
            for action in changed:
                for name, value in probe.envs.action.sample(rng).items():
                    action[name][row] = value
            others = [other for other in range(probe.num) if other != row]
            second = probe.walk(changed)
            compare_rows(first, second, others, f"while only row {row} had other actions")
            if all(not row_difference(one, other, row) for (one, _), (other, _) in zip(first, second, strict=True)):
                raise Failed(f"row {row} is the same under other actions", "a row follows its own actions")

    @check(
        "refusals", "an illegal action is refused in its own row, and the others move", "6.2.1-6 6.2.1-7", "rows apart"
    )
    def refusals(self, probe: VectorProbe) -> None:
        """Make one row's action illegal in the midst of a walk, and compare with an undisturbed one."""
        actions = probe.actions(6)
        for row in (0, probe.num - 1):
            for what, break_it in self._illegal(row):
                self._refuse(actions, row, what, break_it)

    def _illegal(self, row: int) -> Iterator[tuple[str, Callable[[dict[str, Unchecked]], None]]]:
        for field in (one for one in self._probe.envs.action if not one.is_text):
            whole = field.numpy_dtype.kind != "f"
            low, high = field.bounds
            for what, bound, sign in (("below", low, -1), ("above", high, 1)):
                limits = np.iinfo(field.dtype) if whole else np.finfo(field.dtype)
                if bound.ravel()[0] in (limits.min, limits.max):
                    continue

                def beyond(
                    request: dict[str, Unchecked],
                    name: str = field.name,
                    bound: np.ndarray = bound,
                    sign: int = sign,
                    whole: bool = whole,
                ) -> None:
                    last = bound.ravel()[-1].item()
                    number = last + sign * (1 if whole else 0.01 + abs(last) * 1e-3)
                    values = np.array(request["action"][name])
                    if whole and not np.iinfo(values.dtype).min <= number <= np.iinfo(values.dtype).max:
                        values = values.astype(np.int64)
                    flat = values[row : row + 1].reshape(-1)
                    flat[-1] = number
                    values[row] = flat.reshape(values[row].shape)
                    request["action"] = {**request["action"], name: values}

                yield f"{field.name} {what} its range", beyond
            if not whole:

                def not_a_number(request: dict[str, Unchecked], name: str = field.name) -> None:
                    values = np.array(request["action"][name])
                    values[row] = np.nan
                    request["action"] = {**request["action"], name: values}

                yield f"{field.name} not a number", not_a_number

        def stale(request: dict[str, Unchecked]) -> None:
            numbers = np.array(request["frame_no"])
            numbers[row] += 1
            request["frame_no"] = numbers

        yield "another frame_no", stale

    def _refuse(
        self,
        actions: list[dict[str, np.ndarray]],
        row: int,
        what: str,
        break_it: Callable[[dict[str, Unchecked]], None],
    ) -> None:
        probe = self._probe
        table, others = probe.reset(), [other for other in range(probe.num) if other != row]
        straight = probe.walk(actions[:3])
        table = probe.reset()
        for action in actions[:2]:
            table, _ = probe.step(probe.request(table, action))
        before, request = copied_values(table), probe.request(table, dict(actions[2]))
        break_it(request)
        table, reward = probe.step(request)
        where = f"{what} in row {row}"
        moved = row_difference(before, table, row)
        if moved:
            raise Failed(f"{where}: {moved} of the row changed", "an illegal action is not carried out")
        given = reward_of(reward, row)
        if any(given.values()) if isinstance(given, dict) else given:
            raise Failed(f"{where}: the row's reward is {given}", "it must be 0")
        error = table.get("extra_info", {}).get("error")
        told = (isinstance(error, Mapping) and row in error) or (
            isinstance(error, list | tuple | np.ndarray) and len(error) == probe.num and bool(error[row])
        )  # fmt: skip
        if not told:
            raise Failed(f"{where}: extra_info['error'] is {error!r:.80}", f"it must report row {row}")
        for other in others:
            if isinstance(error, Mapping) and other in error:
                raise Failed(f"{where}: extra_info['error'] reports row {other}")
            problem = row_difference(straight[3][0], table, other)
            if problem:
                raise Failed(f"{where}: {problem} of row {other} differs", "the other rows move as usual")
        table, _ = probe.step(probe.request(table, actions[2]))
        problem = row_difference(straight[3][0], table, row)
        if problem:
            raise Failed(f"{where}: {problem} of the row differs in its next frame", "a refused action changes nothing")

    @check("malformed", "a malformed batch raises an error, and no row moves", "6.2.1-6", "equal episodes")
    def malformed(self, probe: VectorProbe) -> None:
        actions = probe.actions(4)
        straight = probe.walk(actions)
        table = probe.reset()
        for number, action in enumerate(actions):
            for what, request in self._broken(probe.request(table, action)):
                try:
                    probe.step(request)
                except Failed:
                    raise
                except Exception:
                    continue
                raise Failed(f"{what} was accepted", "a malformed batch raises IllegalAction, and no row moves")
            table, _ = probe.step(probe.request(table, action))
            check_rows(straight[number + 1][0], table, range(probe.num), "after malformed batches", "they move nobody")

    def _broken(self, request: dict[str, Unchecked]) -> Iterator[tuple[str, object]]:
        yield "a list instead of Table 2", list(request.values())
        for key in request:
            yield f"Table 2 without {key}", {name: value for name, value in request.items() if name != key}
        yield "an unknown key", {**request, "colour": 1}
        yield "env_ids in another order", {**request, "env_id": list(request["env_id"])[::-1]}
        yield "a row short of frame_no", {**request, "frame_no": request["frame_no"][:-1]}
        for name, value in request["action"].items():
            action = request["action"]
            yield f"a row short of {name}", {**request, "action": {**action, name: value[:-1]}}
            yield f"{name} with an extra axis", {**request, "action": {**action, name: value[None]}}
            yield f"one row of {name} for all", {**request, "action": {**action, name: value[:1]}}
            yield f"{name} without the leading axis", {**request, "action": {**action, name: value[0]}}
            yield f"without {name}", {**request, "action": {k: v for k, v in action.items() if k != name}}
            yield f"{name} as text", {**request, "action": {**action, name: value.astype(str)}}
        unknown = {**request["action"], "no_such_field": np.zeros(self._probe.num)}
        yield "an unknown field", {**request, "action": unknown}

    @check("ownership", "tables and actions are the caller's", "contract", "rows apart")
    def ownership(self, probe: VectorProbe) -> None:
        actions = probe.actions(min(12, probe.length))
        straight, held = probe.walk(actions), []
        table = probe.reset()
        for number, action in enumerate(actions):
            request = probe.request(table, {name: value.copy() for name, value in action.items()})
            kept_action = copied_values(request["action"])
            table, _ = probe.step(request)
            if deep_difference(kept_action, request["action"]):
                raise Failed("step changed the action that it was given", "an action is the caller's")
            held.append((table["observation"], copied_values(table["observation"])))
            for value in request["action"].values():  # type: ignore[attr-defined]
                value[...] = 0
            for observation, copy in held:
                problem = deep_difference(copy, observation)
                if problem:
                    raise Failed(f"{problem} of an earlier table changed", "a returned table never changes")
            check_rows(straight[number + 1][0], table, range(probe.num), "after writing into an action",
                       "an action is copied where it is kept")  # fmt: skip
        table = probe.reset()
        for number, action in enumerate(actions):
            request = probe.request({**table, "frame_no": np.array(table["frame_no"])}, action)
            for value in (*table["observation"].values(), table["terminated"], table["truncated"], table["frame_no"]):
                if value.flags.writeable:
                    value[...] = 1
            table, _ = probe.step(request)
            check_rows(straight[number + 1][0], table, range(probe.num), "after writing into a table",
                       "a table is the caller's")  # fmt: skip

    @check("some", "a reset of some leaves the others where they are", "contract", "ownership")
    def some(self, probe: VectorProbe) -> None:
        actions = probe.actions(5)
        straight = probe.walk(actions)
        table = probe.reset()
        for action in actions[:3]:
            table, _ = probe.step(probe.request(table, action))
        try:
            table = probe.reset(ids=[probe.num - 1])
        except ValueError as reason:
            raise NotTried(f"some rows alone can't be reset: {reason}") from None
        self._check_table(table)
        if table["frame_no"][-1] != 0:
            raise Failed(f"frame_no of the row that was reset is {int(table['frame_no'][-1])}", "it must be 0")
        for row in range(probe.num - 1):
            problem = row_difference(straight[3][0], table, row)
            if problem:
                raise Failed(f"{problem} of row {row} changed while row {probe.num - 1} was reset")
        for number in (3, 4):
            table, _ = probe.step(probe.request(table, actions[number]))
            check_rows(straight[number + 1][0], table, range(probe.num - 1), f"after row {probe.num - 1} was reset")

    # -- ends ------------------------------------------------------------------------------------------

    @check("ends", "an ended row goes on as the batch says", "contract", "ownership")
    def ends(self, probe: VectorProbe) -> None:
        mode = getattr(probe.envs, "autoreset", None)
        if mode not in ("same_step", "next_step", "disabled"):
            raise NotTried("the batch does not say by `autoreset` how an ended row goes on")
        table, ends = probe.reset(), 0
        for action in probe.actions(_MOST_STEPS):
            before = copied_values(table)
            table, _ = probe.step(probe.request(table, action))
            over = np.flatnonzero(np.asarray(table["terminated"], bool) | np.asarray(table["truncated"], bool))
            if len(over):
                self._check_end(mode, copied_values(table), before, over)
                ends += 1
            if ends == (2 if mode == "same_step" else 1):
                return
        if ends:
            return
        raise NotTried(f"no episode ended within {_MOST_STEPS} steps")

    def _check_end(self, mode: str, table: Table, before: Table, over: np.ndarray) -> None:
        probe, row = self._probe, int(over[0])
        if mode == "same_step":
            self._check_final(table, before, over)
            return
        if int(table["frame_no"][row]) != int(before["frame_no"][row]) + 1:
            raise Failed(f"frame_no of row {row} is {int(table['frame_no'][row])} in the last frame",
                         f"it must be {int(before['frame_no'][row]) + 1}: the true last frame is shown")  # fmt: skip
        after, reward = probe.step(probe.request(table, probe.actions(1)[0]))
        given = reward_of(reward, row)
        if any(given.values()) if isinstance(given, dict) else given:
            raise Failed(f"row {row} earned {given} after its episode's end", "it must be 0")
        if mode == "next_step":
            if after["frame_no"][row] != 0 or after["terminated"][row] or after["truncated"][row]:
                raise Failed(f"row {row} has frame_no {int(after['frame_no'][row])} in the step after its end",
                             "with next_step that step begins the next episode, and neither flag is set")  # fmt: skip
            return
        if row not in (after.get("extra_info", {}).get("error") or {}):
            raise Failed(f"a step of row {row} after its end has no error", "with disabled it has to be reset first")
        if not after["terminated"][row] and not after["truncated"][row]:
            raise Failed(f"both flags of row {row} are 0 after its end", "with disabled one stands until its reset")
        problem = difference({name: value[row] for name, value in table["observation"].items()},
                             {name: value[row] for name, value in after["observation"].items()})  # fmt: skip
        if problem:
            raise Failed(f"{problem} of row {row} changed after its end", "it stays until it is reset")

    def _check_final(self, table: Table, before: Table, over: np.ndarray) -> None:
        final = table.get("extra_info", {}).get("final")
        if not isinstance(final, Mapping) or not {"index", "observation"} <= final.keys():
            raise Failed(f"extra_info['final'] is {final!r:.60}", "it must hold index and observation of ended rows")
        if not np.array_equal(final["index"], over):
            raise Failed(f"extra_info['final']['index'] is {final['index']}", f"the rows {over} ended")
        for name, value in final["observation"].items():
            if np.shape(value)[:1] != (len(over),):
                raise Failed(f"extra_info['final']['observation'][{name!r}] has shape {np.shape(value)}",
                             f"its leading axis is that of index: {len(over)}")  # fmt: skip
        for place, row in enumerate(over.tolist()):
            if table["frame_no"][row] != 0:
                raise Failed(f"frame_no of row {row} is {int(table['frame_no'][row])}", "the next episode began: 0")
            last = {name: np.asarray(value)[place] for name, value in final["observation"].items()}
            for what, other in (("the next episode's first", table), ("the one before the last", before)):
                if not difference(last, {name: value[row] for name, value in other["observation"].items()}):
                    raise Failed(f"the final observation of row {row} is {what}", "it is what the last action led to")


class _Others:
    """Compare a batch with others made alike, and with a single environment."""

    def __init__(
        self,
        probe: VectorProbe,
        make: Callable[[int], StandardVector],
        single: Callable[[], StandardEnvironment] | None,
    ) -> None:
        self._probe, self._make, self._single = probe, make, single

    @check("size", "a row does not depend on the number of rows", "contract", "ownership")
    def size(self, probe: VectorProbe) -> None:
        first = probe.walk(probe.actions(probe.length))
        for count in (1, probe.num + 2):
            other = self._make(count)
            try:
                frames = probe.walk(probe.actions(probe.length, count), other)
            finally:
                other.close()
            for number, ((one, _), (two, _)) in enumerate(zip(first, frames, strict=True)):
                for row in range(min(count, probe.num)):
                    problem = row_difference(one, two, row)
                    if problem:
                        raise Failed(f"frame {number}: {problem} of row {row} differs in a batch of {count}",
                                     "a row does not depend on the others")  # fmt: skip

    @check("single", "row 0 is a single environment", "contract", "size")
    def single(self, probe: VectorProbe) -> None:
        """Compare row 0 with a single environment up to its episode's end."""
        if self._single is None:
            raise NotTried("no single environment was given to compare with")
        env = self._single()
        try:
            self._follow(env, probe.actions(_MOST_STEPS))
        finally:
            env.close()

    def _follow(self, env: StandardEnvironment, actions: list[dict[str, np.ndarray]]) -> None:
        probe = self._probe
        table, one = probe.reset(), env.reset({"seed": probe.seed})
        self._same(table, one, 0)
        for number, action in enumerate(actions, 1):
            table, reward = probe.step(probe.request(table, action))
            own = {name: value[0] for name, value in action.items()}
            one, gained = env.step({"env_id": env.env_id, "frame_no": one["frame_no"], "action": own})
            ended = bool(one["terminated"] or one["truncated"])
            self._same(table, one, number)
            rewards = [reward_of(reward, 0), gained["reward"]]
            pairs = [list(value.values()) if isinstance(value, Mapping) else [value] for value in rewards]
            if not np.allclose(pairs[0], pairs[1], rtol=_CLOSE, atol=_CLOSE):
                raise Failed(f"frame {number}: row 0 earned {rewards[0]}, a single environment {rewards[1]}")
            if ended:
                return
            if number >= 4 * probe.length and number >= 300:
                return

    def _same(self, table: Table, one: Table, number: int) -> None:
        observation = {name: value[0] for name, value in table["observation"].items()}
        ended = bool(one["terminated"] or one["truncated"])
        for key in ("terminated", "truncated"):
            if int(table[key][0]) != int(one[key]):
                shown = int(table[key][0])
                raise Failed(f"frame {number}: {key} of row 0 is {shown}, of a single environment {one[key]}")
        final = table.get("extra_info", {}).get("final")
        if ended and isinstance(final, Mapping):
            place = np.asarray(final["index"]).tolist().index(0)
            observation = {name: np.asarray(value)[place] for name, value in final["observation"].items()}
        name = difference(one["observation"], observation)
        if name:
            raise Failed(f"frame {number}: {name} of row 0 is {observation.get(name)}",
                         f"that of a single environment is {one['observation'].get(name)}")  # fmt: skip

    @check("closed", "close may be called twice", "contract")
    def closed(self, probe: VectorProbe) -> None:
        other = self._make(2)
        other.close()
        other.close()
