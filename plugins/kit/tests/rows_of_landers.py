"""A correct batch of landers, and faults of batches."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


class RowSeeds:
    """Seed an environment of a batch by seed, row and episode."""

    def restart(self, *key):
        self.rng = np.random.default_rng(key)
        return self.reset()


class SeedsOfRowZero:
    """Give a single environment the episodes of row 0."""

    key = number = 0

    def seed(self, seed):
        super().seed(seed)
        if seed is not None:
            self.key, self.number = int(seed), 0
        self.rng = np.random.default_rng((self.key, 0, self.number))
        self.number += 1


class Seeded(RowSeeds, Lander):
    """A lander that a batch seeds."""


class Alone(SeedsOfRowZero, Lander):
    """A lander whose episodes are those of row 0."""


class Landers:
    """N landers in lockstep; an ended row stays until ``reset({"ids": [...]})``."""

    autoreset = "disabled"
    row: Any = Seeded
    observation, action, description = Lander.observation, Lander.action, Lander.description

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.env_ids = [uuid.uuid4().hex for _ in range(num_envs)]
        self.rows = [self.row() for _ in range(num_envs)]
        for row, env_id in zip(self.rows, self.env_ids, strict=True):
            row.env_id = env_id
        self.key, self.episodes, self.open, self.last = 0, [0] * num_envs, True, None

    def reset(self, options=NOTHING):
        if not self.open:
            raise RuntimeError("reset after close")
        if set(options) - {"seed", "ids"}:
            raise ValueError(f"options {sorted(options)}: allowed are seed and ids")
        ids = options.get("ids")
        if options.get("seed") is not None:
            if isinstance(options["seed"], bool) or int(options["seed"]) != options["seed"] or options["seed"] < 0:
                raise ValueError("seed: whole numbers from 0")
            self.key, self.episodes = int(options["seed"]), [0] * self.num_envs
        if ids is None:
            ids = range(self.num_envs)
        elif self.last is None:
            raise RuntimeError("reset of some before a reset of all")
        elif any(not 0 <= int(i) < self.num_envs for i in ids):
            raise ValueError(f"ids {ids}")
        for i in ids:
            self.begin(int(i))
        return self.stack([row.table() for row in self.rows], flags=False)

    def begin(self, i):
        self.rows[i].restart(*self.seeds(i))
        self.episodes[i] += 1

    def seeds(self, i):
        return self.key, i, self.episodes[i]

    def step(self, action):
        if self.last is None or not self.open:
            raise RuntimeError("step before reset or after close")
        self.check(action)
        tables, rewards, errors = [], [], {}
        for i, row in enumerate(self.rows):
            one = {name: self.part(action["action"][name], i) for name in self.action.names}
            if row.phase == "ended":
                table, reward = row.table(), self.nothing()
                errors[i] = row.error("ended", "", "this row has ended")
            else:
                frame = np.asarray(action["frame_no"])[i]
                table, given = row.step({"env_id": row.env_id, "frame_no": frame, "action": one})
                reward = given["reward"]
                if "error" in table["extra_info"]:
                    errors[i] = table["extra_info"]["error"]
            tables.append(table)
            rewards.append(reward)
        stacked = self.stack(tables)
        if errors:
            stacked["extra_info"]["error"] = errors
        return stacked, self.rewards(stacked, rewards)

    def part(self, values, i):
        return np.asarray(values)[i]

    def check(self, action):
        """Refuse a batch that is malformed as a whole."""
        if set(action) != {"env_id", "frame_no", "action"} or list(action["env_id"]) != self.env_ids:
            raise ValueError("the batch has other keys or ids")
        if set(action["action"]) != set(self.action.names) or np.shape(action["frame_no"]) != (self.num_envs,):
            raise ValueError("the batch has other fields, or frame_no another shape")
        for field in self.action:
            value = np.asarray(action["action"][field.name])
            if value.shape != (self.num_envs, *field.shape) or value.dtype != field.numpy_dtype:
                raise ValueError(f"{field.name} has shape {value.shape} and type {value.dtype}")

    def nothing(self):
        return 0.0

    def rewards(self, stacked, rewards):
        earned = np.array(rewards, float)
        return {"env_id": list(self.env_ids), "frame_no": stacked["frame_no"].copy(), "reward": earned}

    def stack(self, tables, flags=True):
        self.last = {
            "env_id": list(self.env_ids),
            "frame_no": np.array([table["frame_no"] for table in tables], np.int32),
            "observation": {
                name: np.stack([table["observation"][name] for table in tables]) for name in self.observation.names
            },
            "extra_info": {},
            "terminated": np.array([table["terminated"] if flags else 0 for table in tables], np.int32),
            "truncated": np.array([table["truncated"] if flags else 0 for table in tables], np.int32),
        }
        return dict(self.last)

    def close(self):
        self.open = False


replaces(Landers, "part", {
    # The action of row 0 moves row 1, and the other way round.
    "RowsSwapped -> rows apart": lambda self, values, i: np.asarray(values)[i ^ 1 if i ^ 1 < self.num_envs else i],
    # The legs of all rows follow row 0.
    "FirstActionForAll -> refusals": lambda self, values, i: np.asarray(values)[0 if np.ndim(values) == 1 else i],
})  # fmt: skip


replaces(Landers, "seeds", {
    # All rows have the same episodes.
    "SameSeedForAll -> equal episodes": lambda self, i: (self.key, 0, self.episodes[i]),
    # A row's episodes depend on the number of rows.
    "SeedOfNumber -> size": lambda self, i: (self.key, i + self.num_envs, self.episodes[i]),
})  # fmt: skip


@fault("refusals", "An illegal action of one row holds all rows.")
class IllegalStopsAll(Landers):
    def step(self, action):
        self.check(action)
        legal = [
            row.broken_rule({name: np.asarray(action["action"][name])[i] for name in self.action.names}) is None
            for i, row in enumerate(self.rows)
        ]
        if all(legal):
            return super().step(action)
        stacked = self.stack([row.table() for row in self.rows])
        stacked["extra_info"]["error"] = {i: {"code": "range"} for i, one in enumerate(legal) if not one}
        return stacked, self.rewards(stacked, np.zeros(self.num_envs))


@fault("refusals", "An illegal value in one row raises for all.")
class IllegalRaises(Landers):
    def check(self, action):
        super().check(action)
        if np.max(np.abs(action["action"]["thrust"])) > 1:
            raise ValueError("out of range")


@fault("refusals", "The error of row i is listed as row 0's.")
class ErrorAtWrongRow(Landers):
    def step(self, action):
        stacked, rewards = super().step(action)
        errors = stacked["extra_info"].get("error")
        if errors:
            stacked["extra_info"]["error"] = {0: next(iter(errors.values()))}
        return stacked, rewards


replaces(Landers, "reset", {
    # A reset of some rows resets all.
    "ResetOfSomeResetsAll -> some": lambda self, options=NOTHING: (Landers.reset(self, {name: value for name, value in
        options.items() if name != "ids"})),
})  # fmt: skip


changes(Landers, "stack", {
    # The flags are bool.
    "FloatFlags -> reset": lambda self, table: table | {"terminated": table["terminated"].astype(float)},
})  # fmt: skip


@fault("ownership", "The tables are the batch's own arrays.")
class SharedTables(Landers):
    def stack(self, tables, flags=True):
        table = super().stack(tables, flags)
        if not hasattr(self, "out"):
            self.out = {name: value.copy() for name, value in table["observation"].items()}
        for name, value in table["observation"].items():
            self.out[name][:] = value
        return table | {"observation": self.out}


@fault("ends", "An ended row goes on.")
class EndedRowMoves(Landers):
    def step(self, action):
        for row in self.rows:
            if row.phase == "ended":
                row.phase = "running"
        return super().step(action)


@fault("frames", "The height of the last row is NaN at frame 14.")
class LastRowNan(Landers):
    def stack(self, tables, flags=True):
        table = super().stack(tables, flags)
        if table["frame_no"][-1] == 14:
            table["observation"]["height"][-1] = np.nan
        return table


replaces(Landers, "rewards", {
    # The rewards have shape (N, 1).
    "RewardColumn -> frames": lambda self, stacked, rewards: Landers.rewards(self, stacked, np.array(rewards)[:, None]),
})  # fmt: skip


changes(Landers, "rewards", {
    # The rewards' env_id lacks the last row.
    "ShortRewards -> frames": lambda self, right: right | {"env_id": self.env_ids[:-1]},
})  # fmt: skip


@fault("single", "Row 0 falls faster than a single environment does: for `single=`.")
class RowZeroDiffers(Landers):
    def begin(self, i):
        super().begin(i)
        if i == 0:
            self.rows[0].height *= 0.9


replaces(Landers, "check", {
    # A batch with another environment's ids moves.
    "AcceptsWrongIds -> malformed": lambda self, action: Landers.check(self, action | {"env_id": list(self.env_ids)}),
})  # fmt: skip


@fault("malformed", "A batch of float64 thrusts that overflow float32's range check moves: types are not checked.")
class AcceptsDoubles(Landers):
    def check(self, action):
        return None

    def part(self, values, i):
        value = np.asarray(values)[i]
        return value.astype(np.float32) if value.dtype.kind == "f" else value.astype(np.uint8)
