"""Test a batch of environments against its contract: Tables 1 to 3 with a leading axis, row by row (R2, R6.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from rlenv_kit.episodes import field_names
from rlenv_kit.ownership import alter
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
    holds,
    objects_in,
)
from rlenv_kit.vector_histories import history_checks, last_checks
from rlenv_kit.vector_messages import message_checks
from rlenv_kit.vector_others import MOST_STEPS, other_checks
from rlenv_kit.vector_probe import (
    Answer,
    StandardVector,
    Table,
    VectorProbe,
    check_rows,
    compare_rows,
    described,
    left_difference,
    reward_of,
    row_difference,
)
from rlenv_kit.vector_rows import illegal_rows, row_checks
from rlenv_kit.vector_tables import later_checks

__all__ = ["check_vector"]

_TABLE_1 = frozenset({"env_id", "frame_no", "observation", "terminated", "truncated"})
_TABLE_3 = frozenset({"env_id", "frame_no", "reward"})


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
        rows = _Rows(probe)
        checks = [*declared(vars(_Rows), rows, probe), *row_checks(probe), *other_checks(probe, make, single)]
        checks += [*message_checks(probe), *history_checks(probe)]
        checks += later_checks(probe, rows.check_table, rows.check_rewards, checks)
        return in_order(_ORDER, [*checks, *last_checks(probe, make, checks)])

    checks = supervisor.run(prepare, only)
    shown = name or (type(probes[0].envs).__name__ if probes else "that was not made")
    notes = tuple(probes[0].notes.values()) if probes else ()
    return Report(f"batch {shown}", checks, notes, time.monotonic() - began, steps=log.steps)


_ORDER = (
    "too early", "reset", "frames", "equal episodes", "rows apart", "unknown option", "refusals", "malformed",
    "ownership", "some", "ends", "inference", "size", "single", "closed", "messages", "two batches", "process", "sizes",
    "some too early", "every table", "some rows", "histories",
    "snapshots", "orderly end",
)  # fmt: skip
"""Keys of the checks by their number, from 1; a new one comes last, since users reproduce findings by number."""


def _named(agents: frozenset[object] | None) -> str:
    return "nobody in particular" if agents is None else ", ".join(sorted(map(str, agents)))


class _Rows:
    """Check the rows of one batch."""

    def __init__(self, probe: VectorProbe) -> None:
        self._probe = probe
        self._agents: tuple[frozenset[object] | None] | None = None
        self._names = list(probe.envs.env_ids)
        self._number = 0  # of the step in which a row ended
        self._ended: dict[int, Table] = {}  # step -> the table in which the first row ended, and the one after it

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
            self.check_table(table)
            if np.asarray(table["frame_no"]).any():
                probe.note("6.2.3.1-T1.frame_no", "frame_no goes on over resets; here each episode begins at 0")
        self.check_table(probe.plain_reset())

    @check("frames", "each row keeps Tables 1 and 3 up to an episode's end", "6.2.2.2-4 6.2.3.1-T1 6.2.3.3-T3", "reset")
    def frames(self, probe: VectorProbe) -> None:
        table, over = probe.reset(), np.zeros(probe.num, bool)
        for number, action in enumerate(probe.each_action(MOST_STEPS)):
            before, was_over = np.array(table["frame_no"]), over
            table, reward = probe.step(probe.request(table, action))
            self.check_table(table)
            self.check_rewards(reward, table)
            self._check_agents(reward["reward"], table)
            over = np.asarray(table["terminated"], bool) | np.asarray(table["truncated"], bool)
            wrong = np.flatnonzero((np.asarray(table["frame_no"]) != before + 1) & ~over & ~was_over)
            if "error" not in table.get("extra_info", {}) and len(wrong):
                row = int(wrong[0])
                raise Failed(f"frame_no of row {row} is {int(table['frame_no'][row])} after {int(before[row])}",
                             "each step of an episode adds 1")  # fmt: skip
            if over.any() or was_over.any():
                self._ended[number] = copied_values(table)
            if was_over.any() or (over.any() and probe.mode == "disabled"):
                return
        probe.note(
            "6.2.3.1-T1.terminated", f"no end within {MOST_STEPS} steps of a batch; later frames were not looked at"
        )

    def check_table(self, table: Unchecked) -> None:
        """Check a Table 1 of the batch by itself."""
        probe = self._probe
        check_keys(table, _TABLE_1, ("extra_info",), "Table 1 of a batch")
        names = list(table["env_id"])
        if len(names) != probe.num or len(set(names)) != probe.num:
            raise Failed(f"env_id has {len(set(names))} different names for {probe.num} rows", "each row has its own")
        if names != self._names or list(probe.envs.env_ids) != self._names:
            raise Failed(f"env_id is {names}, of the batch {list(probe.envs.env_ids)}", f"rows keep {self._names}")
        for key in ("frame_no", "terminated", "truncated"):
            value = table[key]
            if not isinstance(value, np.ndarray) or value.shape != (probe.num,) or value.dtype != np.int32:
                raise Failed(f"{key} is {value!r:.60}", f"it must be {probe.num} whole numbers (int32)")
        for name, value in table["observation"].items():
            if not isinstance(value, np.ndarray) or value.shape[:1] != (probe.num,):
                raise Failed(f"observation.{name} is {value!r:.60}", f"its leading axis must be {probe.num}")
        for row in range(probe.num):
            try:
                check_observation(probe.row(table, row), probe.envs.observation)
            except Failed as finding:
                raise Failed(f"row {row}: {finding}") from finding
        self._check_entries(table.get("extra_info", {}))

    def _check_entries(self, extra: Mapping[str, Unchecked]) -> None:
        """Check that extra_info holds what a program can read, under names that are described if any are."""
        probe, known = self._probe, described(self._probe.envs, "extra_info")
        for place in objects_in(extra, "extra_info"):
            raise Failed(place, "extra_info holds numbers, texts, arrays, lists and mappings of them")
        for key in extra.keys() - known.keys() - {"error"}:
            if known:
                raise Failed(f"extra_info has {key!r}", f"the description lists {', '.join(map(str, known))}")
        if getattr(probe.envs, "mode", None) == "inference" and holds(extra, "state"):
            raise Failed("extra_info has 'state'", "opened for inference, privileged state is absent")

    def check_rewards(self, reward: Unchecked, table: Table) -> None:
        """Check a Table 3 of the batch with its Table 1."""
        entries: Unchecked = check_keys(reward, _TABLE_3, (), "Table 3 of a batch")
        if list(entries["env_id"]) != self._names:
            raise Failed(f"env_id in Table 3 is {entries['env_id']!r:.80}", f"it must be {self._names}")
        columns = entries["reward"].values() if isinstance(entries["reward"], Mapping) else [entries["reward"]]
        for column in columns:
            if np.shape(column) != (self._probe.num,):
                raise Failed(f"reward has shape {np.shape(column)}", f"it must be ({self._probe.num},)")
        if not np.array_equal(entries["frame_no"], table["frame_no"]):
            raise Failed(f"frame_no is {entries['frame_no']} in Table 3, and {table['frame_no']} in Table 1")
        for row in range(self._probe.num):
            check_reward({"env_id": entries["env_id"][row], "frame_no": int(entries["frame_no"][row]),
                          "reward": reward_of(entries, row)}, self._probe.declared_reward)  # fmt: skip

    def _check_agents(self, reward: Unchecked, table: Table) -> None:
        """Check that rewards and the agents' own observations are of the same agents in every frame, for all rows."""
        probe, extra = self._probe, table.get("extra_info", {})
        agents = frozenset(reward) if isinstance(reward, Mapping) else None
        if self._agents is None:
            self._agents = (agents,)
        elif self._agents != (agents,):
            raise Failed(f"rewards are of {_named(agents)}", f"they were of {_named(self._agents[0])} before")
        mapping = extra.get("agents")
        if agents is None and isinstance(mapping, Mapping) and len(mapping) > 1:
            raise Failed(f"the agents are {', '.join(map(str, mapping))}, and the reward is a single one",
                         "with several agents it is a dictionary from agent to reward")  # fmt: skip
        if agents is None or (mapping is None and "agent" in extra):
            return
        if not isinstance(mapping, Mapping) or mapping.keys() != agents:
            came = "no mapping" if not isinstance(mapping, Mapping) else f"a mapping of {_named(frozenset(mapping))}"
            raise Failed(f"rewards are of {_named(agents)}, and extra_info['agents'] is {came}",
                         "with several agents it says what each of them observes")  # fmt: skip
        for agent, seen in mapping.items():
            for unknown in set(field_names(seen)) - set(table["observation"]):
                raise Failed(
                    f"agent {agent!r} observes {unknown!r}", f"the observation has {list(table['observation'])}"
                )
            for name, part in seen.items() if isinstance(seen, Mapping) else ():
                if isinstance(part, np.ndarray) and part.shape[:1] != (probe.num,):
                    raise Failed(f"what agent {agent!r} observes as {name!r} has shape {part.shape}",
                                 f"its leading axis must be {probe.num}")  # fmt: skip

    @check("unknown option", "an unknown reset option is refused, or noted", "contract", "reset")
    def unknown_option(self, probe: VectorProbe) -> None:
        actions = probe.actions(2)
        straight, table = probe.walk(actions), probe.reset()
        table, _ = probe.step(probe.request(table, actions[0]))
        try:
            probe.log.call("reset", probe.envs.reset, {"no_such_option": 1})
        except ValueError:
            table, _ = probe.step(probe.request(table, actions[1]))
            check_rows(straight[2][0], table, range(probe.num), "after a refused reset", "it begins no row")
            return
        except Exception as error:
            probe.note("contract", f"an unknown option raises {type(error).__name__}; here it is ValueError")
            return
        listed = described(probe.envs, "reset_options")
        if listed:
            raise Failed("reset ignored the option 'no_such_option'",
                         f"the description lists {', '.join(map(str, listed))}; others raise ValueError")  # fmt: skip
        probe.note("contract", "an unknown reset option is ignored, so a misspelt name goes unnoticed")

    @check("inference", "privileged state can't be reached in inference", "6.2.3.1-5", "frames")
    def inference(self, probe: VectorProbe) -> None:
        mode = getattr(probe.envs, "mode", None)
        if mode != "inference":
            raise NotTried("the batch is not opened for inference")
        for table, _ in probe.walk(probe.actions(MOST_STEPS // 10)):
            self._check_entries(table.get("extra_info", {}))

    # -- rows ------------------------------------------------------------------------------------------

    @check("equal episodes", "equal seeds give equal episodes, and rows differ", "6.2.2.1-3", "frames")
    def equal(self, probe: VectorProbe) -> None:
        actions = probe.actions(probe.length)
        first, again = probe.walk(actions), probe.walk(actions)
        compare_rows(first, again, range(probe.num), "in a second episode of the same seed and actions")
        self._check_unseeded()
        starts = [probe.row(first[0][0], row)["observation"] for row in range(probe.num)]
        if any(difference(starts[0], other) for other in starts[1:]):
            return
        other = probe.row(probe.log.call("reset", probe.envs.reset, {"seed": probe.seed + 1}), 0)["observation"]
        shared = np.size(streams := getattr(probe.envs, "streams", ())) > np.size(np.unique(streams))
        if difference(starts[0], other) and not shared:
            raise Failed("all rows begin alike, and with another seed otherwise",
                         "each row draws its own episodes")  # fmt: skip
        probe.note("6.2.2.1-3", "all rows begin alike, whatever the seed")

    def _check_unseeded(self) -> None:
        """Check that resets without a seed begin other episodes, where seeds do."""
        probe = self._probe

        def starts(options: Mapping[str, object]) -> list[Mapping[str, np.ndarray]]:
            table = probe.log.call("reset", probe.envs.reset, options)
            return [probe.row(table, row)["observation"] for row in range(probe.num)]

        def alike(one: list[Mapping[str, np.ndarray]], other: list[Mapping[str, np.ndarray]]) -> bool:
            return not any(map(difference, one, other))

        seeded = [starts({"seed": probe.seed + number}) for number in range(4)]
        unseeded = [starts({}) for _ in range(4)]
        if all(alike(unseeded[0], one) for one in unseeded[1:]) and not all(alike(seeded[0], s) for s in seeded[1:]):
            raise Failed("four resets without a seed begin all rows alike, and seeds begin them otherwise",
                         "without a seed each reset draws anew")  # fmt: skip
        for row in range(1, probe.num):
            if all(not difference(one[0], one[row]) for one in unseeded) and all(
                difference(one[0], one[row]) for one in seeded
            ):
                raise Failed(f"rows 0 and {row} begin alike after resets without a seed, and not after those with one",
                             "each row draws its own episodes")  # fmt: skip
        self._check_overlap(seeded)
        self._check_illegal_seeds(matters=not all(alike(seeded[0], one) for one in seeded[1:]))

    def _check_overlap(self, seeded: list[list[Mapping[str, np.ndarray]]]) -> None:
        """Note that a row begins with a seed as its neighbour with the next one, so that seeds share episodes."""
        probe = self._probe
        rows = range(probe.num - 1)
        pairs = [(seeded[k][row + 1], seeded[k + 1][row]) for k in range(len(seeded) - 1) for row in rows]
        apart = all(difference(seeded[k][row], seeded[k][row + 1]) for k in range(len(seeded)) for row in rows)
        if apart and not any(difference(*pair) for pair in pairs):
            probe.note("contract", "row i begins with a seed as row i + 1 with the seed before it, so two seeds share "
                       "episodes; here a row draws from the seed and its number")  # fmt: skip

    def _check_illegal_seeds(self, matters: bool) -> None:
        """Check that a batch which a seed changes refuses values that are no seeds."""
        for seed in (-1, "one", 1.5):
            try:
                self._probe.log.call("reset", self._probe.envs.reset, {"seed": seed})
            except Failed:
                raise
            except Exception:
                continue
            if matters:
                raise Failed(f"a reset with the seed {seed!r} was accepted", "a seed is a whole number of at least 0")
            self._probe.note("6.2.2.1-3", f"a reset takes the seed {seed!r}; a seed is a whole number of at least 0")

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
            if not len(probe.envs.observation) or any(field.is_text for field in probe.envs.action):
                continue  # a text may be a wrong answer each time, and rows may have nothing to show
            if all(_shows_same(*pair, row) for pair in zip(first, second, strict=True)):
                raise Failed(f"row {row} is the same under other actions", "a row follows its own actions")

    @check("ownership", "tables and actions are the caller's", "contract", "rows apart")
    def ownership(self, probe: VectorProbe) -> None:
        actions = probe.actions(min(12, probe.length))
        straight, held = probe.walk(actions), []
        table, options = probe.reset(), {"seed": probe.seed}
        probe.log.call("reset", probe.envs.reset, options)
        if options != {"seed": probe.seed}:
            raise Failed(f"reset changed the caller's options to {options}", "they stay the caller's")
        for number, action in enumerate(actions):
            arrays = {name: value.copy() for name, value in action.items()}
            request = copied_values(probe.request(table, arrays))
            kept_request = copied_values(request)
            answer = probe.step(request)
            table = answer[0]
            place = deep_difference(kept_request, request)
            if place:
                raise Failed(f"step changed {place} of the table that it was given", "an action is the caller's")
            held += [(part, copied_values(part)) for part in answer]
            for value in (request["frame_no"], *request["action"].values()):
                if isinstance(value, np.ndarray):
                    value[...] = np.zeros((), value.dtype)
            for returned, copy in held:
                problem = deep_difference(copy, returned)
                if problem:
                    raise Failed(f"{problem} of an earlier table changed", "a returned table never changes")
            check_rows(straight[number + 1][0], table, range(probe.num), "after writing into an action",
                       "an action is copied where it is kept")  # fmt: skip
        table = probe.reset()
        for number, action in enumerate(actions):
            request = probe.request({**table, "frame_no": np.array(table["frame_no"])}, action)
            parts = [table[name] for name in ("observation", "terminated", "truncated", "frame_no")]
            for part in (*parts, table.get("extra_info", {})):
                alter(part)
            table, reward = probe.step(request)
            alter(reward["reward"])
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
        self.check_table(table)
        for ids in ([-1], [probe.num]):
            self._try_ids(ids)
        self._try_no_ids(table)
        if table["frame_no"][-1] != 0:
            raise Failed(f"frame_no of the row that was reset is {int(table['frame_no'][-1])}", "it must be 0")
        for row in range(probe.num - 1):
            problem = left_difference(straight[3][0], table, row, probe.mode)
            if problem:
                raise Failed(f"{problem} of row {row} changed while row {probe.num - 1} was reset")
        for number in (3, 4):
            table, _ = probe.step(probe.request(table, actions[number]))
            check_rows(straight[number + 1][0], table, range(probe.num - 1), f"after row {probe.num - 1} was reset")
        self._try_odd_ids()

    def _try_odd_ids(self) -> None:
        probe = self._probe
        for ids in ([1, 0], [0, 0], [0.5], ["0"], [[0]], [True]):
            try:
                probe.reset(ids=ids)
            except Exception:
                continue
            if "ascending" in str(described(probe.envs, "reset_options").get("ids", "")):
                raise Failed(f"reset took the ids {ids}", "the description says that they are ascending")
            probe.note("contract", f"reset takes the ids {ids}; here they are ascending whole numbers")

    def _try_no_ids(self, before: Table) -> None:
        """Check that a reset of no rows, where it is taken, begins none."""
        probe, before = self._probe, copied_values(before)
        try:
            after = probe.reset(ids=[])
        except Exception:
            return
        for row in range(probe.num):
            if problem := left_difference(before, after, row, probe.mode):
                raise Failed(f"{problem} of row {row} changed with a reset of no rows", "ids=[] begins no episode")

    def _try_ids(self, ids: list[Unchecked]) -> None:
        probe = self._probe
        try:
            probe.reset(ids=ids)
        except Exception:
            return
        raise Failed(f"reset took the ids {ids}", f"they are different numbers from 0 to {probe.num - 1}")

    # -- ends ------------------------------------------------------------------------------------------

    @check("ends", "an ended row goes on as the batch says", "contract", "ownership")
    def ends(self, probe: VectorProbe) -> None:
        mode = probe.mode
        if mode not in ("same_step", "next_step", "disabled"):
            raise NotTried("the batch does not say by `autoreset` how an ended row goes on")
        table, ends = probe.reset(), 0
        for number, action in enumerate(probe.each_action(MOST_STEPS)):
            before = copied_values(table)
            table, _ = probe.step(probe.request(table, action))
            over = np.flatnonzero(np.asarray(table["terminated"], bool) | np.asarray(table["truncated"], bool))
            if len(over) and not ends:
                self._check_begun(number, table, range(probe.num) if mode == "same_step" else over[:0])
            if len(over):
                self._number = number
                self._check_end(mode, copied_values(table), before, over)
                ends += 1
            if ends == (2 if mode == "same_step" else 1):
                return
        if ends:
            return
        raise NotTried(f"no episode ended within {MOST_STEPS} steps")

    def _check_begun(self, number: int, table: Table, rows: Iterable[int]) -> None:
        """Check that episodes which begin within a run are those of an earlier run with the same seed and actions."""
        if number in self._ended:
            check_rows(self._ended[number], table, rows, "in another run of the same seed, after an episode's end",
                       "a seed fixes later episodes too")  # fmt: skip

    def _check_end(self, mode: str, table: Table, before: Table, over: np.ndarray) -> None:
        probe, row = self._probe, int(over[0])
        if mode == "same_step":
            self._check_final(table, before, over)
            return
        if int(table["frame_no"][row]) != int(before["frame_no"][row]) + 1:
            raise Failed(f"frame_no of row {row} is {int(table['frame_no'][row])} in the last frame",
                         f"it must be {int(before['frame_no'][row]) + 1}: the true last frame is shown")  # fmt: skip
        request = probe.request(table, probe.actions(1)[0])
        if mode == "next_step":
            for _, break_it in illegal_rows(probe, row):
                break_it(request)  # it is ignored
                break
        after, reward = probe.step(request)
        given = reward_of(reward, row)
        if any(given.values()) if isinstance(given, dict) else given:
            raise Failed(f"row {row} earned {given} after its episode's end", "it must be 0")
        if mode == "next_step":
            if after["frame_no"][row] != 0 or after["terminated"][row] or after["truncated"][row]:
                raise Failed(f"row {row} has frame_no {int(after['frame_no'][row])} in the step after its end",
                             "with next_step that step begins the next episode, and neither flag is set")  # fmt: skip
            if row in (after.get("extra_info", {}).get("error") or {}):
                raise Failed(
                    f"row {row} has an error in the step after its end", "with next_step it ignores the action"
                )
            self._check_begun(self._number + 1, after, [row])
            return
        if row not in (after.get("extra_info", {}).get("error") or {}):
            raise Failed(f"a step of row {row} after its end has no error", "with disabled it has to be reset first")
        if not after["terminated"][row] and not after["truncated"][row]:
            raise Failed(f"both flags of row {row} are 0 after its end", "with disabled one stands until its reset")
        problem = row_difference(table, after, row)
        if problem:
            raise Failed(f"{problem} of row {row} changed after its end", "it stays until it is reset")
        try:
            begun = probe.reset(ids=[row])
        except ValueError as reason:
            probe.note("contract", f"an ended row can't be reset alone: {reason}")
            return
        if begun["frame_no"][row] != 0 or begun["terminated"][row] or begun["truncated"][row]:
            raise Failed(f"row {row} has frame_no {int(begun['frame_no'][row])} after its reset, or a flag",
                         "its reset begins the next episode")  # fmt: skip

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
        last_frames = np.asarray(before["frame_no"])[over] + 1
        if "frame_no" in final and not np.array_equal(final["frame_no"], last_frames):
            raise Failed(
                f"extra_info['final']['frame_no'] is {final['frame_no']}", f"the last frames are {last_frames}"
            )
        for place, row in enumerate(over.tolist()):
            if table["frame_no"][row] != 0:
                raise Failed(f"frame_no of row {row} is {int(table['frame_no'][row])}", "the next episode began: 0")
            last = {name: np.asarray(value)[place] for name, value in final["observation"].items()}
            for what, other in (("the next episode's first", table), ("the one before the last", before)):
                if not difference(last, {name: value[row] for name, value in other["observation"].items()}):
                    raise Failed(f"the final observation of row {row} is {what}", "it is what the last action led to")


def _shows_same(one: Answer, other: Answer, row: int) -> bool:
    """Return whether a row is the same in two answers, with what it earned and the last frame of its episode."""
    if row_difference(one[0], other[0], row) or (one[1] and reward_of(one[1], row) != reward_of(other[1], row)):
        return False
    last = [answer[0].get("extra_info", {}).get("final") for answer in (one, other)]
    return not deep_difference(*last)
