"""A correct batch: kilns as arrays over the rows."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import numpy as np

import rlenv_robot as rr
from hal import Violation

from .common import NOTHING, good

_SEEN = rr.Spec(
    "kiln_seen",
    (
        rr.Field("zone_temperature", (2,), "float32", 250, 900, "K", "measured temperature of each zone"),
        rr.Field("goal", (2,), "float32", 350, 520, "K", "temperature that each zone shall have"),
        rr.Field("fuel", (), "float32", 0, 5, "kg", "fuel that is left"),
    ),
)
_DONE = rr.Spec(
    "kiln_done",
    (
        rr.Field("heat", (2,), "float32", 0, 1, "1", "share of each burner's power"),
        rr.Field("vent", (), "int32", 0, 3, "1", "number of open vents"),
    ),
)


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@good("vector")
class Kilns:
    """Kilns with two zones, as arrays over rows; the next episode begins in the same step."""

    autoreset = "same_step"
    mode = "training"
    agents: tuple[str, ...] = ()
    limit = 12

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation, self.action = _SEEN, _DONE
        stem = uuid.uuid4().hex[:20]
        self.env_ids = [f"kiln-{stem}-{row}" for row in range(num_envs)]
        self.seed = int(np.random.SeedSequence().entropy or 0) % 2**63
        self.started = self.closed = False
        n = num_envs
        self.episode = np.zeros(n, np.int64)
        self.rngs = [np.random.default_rng(0) for _ in range(n)]
        self.frame_no = np.zeros(n, np.int32)
        self.terminated, self.truncated = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self.zones, self.goal = np.full((n, 2), 300, np.float32), np.full((n, 2), 400, np.float32)
        self.fuel, self.wall = np.full(n, 4, np.float32), np.full(n, 300, np.float32)
        self.heat, self.vent = np.zeros((n, 2), np.float32), np.zeros(n, np.int32)
        self.error: dict[int, dict[str, Any]] = {}
        self.final: dict[str, Any] | None = None

    # -- Calls

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        self.check_open()
        ids = self.read_options(options)
        if options.get("seed") is not None:
            self.seed = int(options["seed"])
            self.restart()
        self.started = True
        self.error, self.final = {}, None
        self.begin(ids)
        return self.table()

    def step(self, action: Any, extra_info: Any = NOTHING) -> tuple[dict[str, Any], dict[str, Any]]:
        self.check_running()
        heat, vent, frame_no = self.read(action, extra_info)
        begins = self.rows_to_begin()
        self.error = self.violations(heat, vent, frame_no, begins)
        moves = ~begins
        moves[list(self.error)] = False
        self.final = None
        reward = np.zeros(self.num_envs)
        self.move(moves, heat, vent)
        self.frame_no[moves] += 1
        reward[moves] = self.gains()[moves]
        self.judge(moves)
        ended = moves & ((self.terminated | self.truncated) == 1)
        flags = self.after(ended, begins)
        table = self.table(*flags)
        return table, self.reward_table(table, reward)

    def end(self, reason: str, ids: Any = None) -> dict[str, Any]:
        """End running episodes in an orderly way."""
        self.check_running()
        if not isinstance(reason, str) or not reason:
            raise ValueError("the reason must be a sentence")
        over = (self.terminated | self.truncated) == 1
        rows = np.flatnonzero(~over) if ids is None else self.read_ids(ids)
        if over[rows].any():
            raise rr.EpisodeError("an episode has ended already")
        self.error, ended = {}, np.zeros(self.num_envs, bool)
        ended[rows] = True
        self.truncated[rows] = 1
        flags = self.after(ended, np.zeros(self.num_envs, bool), reason)
        return self.table(*flags)

    def snapshot(self, ids: Any = None) -> dict[str, Any]:
        """Return the state of all or some rows."""
        if not self.started:
            raise rr.EpisodeError("snapshot before reset")
        rows = range(self.num_envs) if ids is None else self.read_ids(ids)
        return {"seed": self.seed, "rows": [copy.deepcopy(self.row(i)) for i in rows]}

    def restore(self, snapshot: dict[str, Any], ids: Any = None) -> dict[str, Any]:
        """Continue from a snapshot."""
        self.check_open()
        rows = range(self.num_envs) if ids is None else self.read_ids(ids)
        if ids is not None and not self.started:
            raise rr.EpisodeError("restore of some before a reset of all")
        kept = snapshot["rows"] * (len(rows) if len(snapshot["rows"]) == 1 else 1)
        if len(kept) != len(rows):
            raise ValueError("the snapshot has another number of rows")
        for i, state in zip(rows, kept, strict=True):
            for name, value in copy.deepcopy(state).items():
                getattr(self, name)[i] = value
        if ids is None:
            self.seed = snapshot["seed"]
        self.started, self.error, self.final = True, {}, None
        return self.table(self.terminated, self.truncated)

    def close(self) -> None:
        self.closed = True

    # -- Checks

    def check_open(self) -> None:
        if self.closed:
            raise rr.EpisodeError("the kilns are closed")

    def check_running(self) -> None:
        self.check_open()
        if not self.started:
            raise rr.EpisodeError("reset all kilns first")

    def read_options(self, options: Any) -> np.ndarray:
        unknown = set(options) - {"seed", "ids"}
        if unknown:
            raise ValueError(f"options {sorted(map(str, unknown))} are unknown, allowed are ids, seed")
        seed = options.get("seed")
        if seed is not None and (not _whole(seed) or seed < 0):
            raise ValueError(f"seed is {seed!r}, expected a whole number from 0")
        if options.get("ids") is None:
            return np.arange(self.num_envs)
        if not self.started:
            raise rr.EpisodeError("reset all kilns before some")
        return self.read_ids(options["ids"])

    def read_ids(self, ids: Any) -> np.ndarray:
        rows = list(ids) if isinstance(ids, list | tuple | np.ndarray | range) else [None]
        if not all(_whole(i) and 0 <= i < self.num_envs for i in rows) or rows != sorted(set(rows)):
            raise ValueError(f"ids are {ids!r}, expected ascending numbers from 0 to {self.num_envs - 1}")
        return np.array(rows, int)

    def read(self, action: Any, extra_info: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of Table 2; refuse a batch that is malformed as a whole."""
        if not hasattr(action, "keys"):
            self.refuse("dtype", "", "Table 2 is no mapping")
        for key in ("env_id", "frame_no", "action"):
            if key not in action:
                self.refuse("missing", key, f"{key} is missing")
        if set(action) - {"env_id", "frame_no", "action"}:
            self.refuse("unknown", "", "Table 2 has further keys")
        if not hasattr(extra_info, "keys") or extra_info:
            self.refuse("unknown", "extra_info", "extra_info must be empty")
        if list(action["env_id"]) != self.env_ids:
            self.refuse("env_id", "env_id", "these are not the names of this batch")
        given = action["action"]
        if not hasattr(given, "keys"):
            self.refuse("dtype", "action", "the action is no mapping")
        for name in ("heat", "vent"):
            if name not in given:
                self.refuse("missing", f"action.{name}", f"{name} is missing")
        if set(given) - {"heat", "vent"}:
            self.refuse("unknown", "action", "the action has further fields")
        heat = self.array(given["heat"], "action.heat", (self.num_envs, 2), "fiu")
        vent = self.array(given["vent"], "action.vent", (self.num_envs,), "iu")
        frame_no = self.array(action["frame_no"], "frame_no", (self.num_envs,), "iu")
        return heat, vent, frame_no

    def array(self, value: Any, field: str, shape: tuple[int, ...], kinds: str) -> np.ndarray:
        try:
            array = np.array(value)
        except ValueError:
            self.refuse("shape", field, "rows of different lengths")
        if array.dtype.kind not in kinds:
            self.refuse("dtype", field, f"{field} has the type {array.dtype}")
        if array.shape != shape:
            self.refuse("shape", field, f"{field} has the shape {array.shape}, expected {shape}")
        return array

    @staticmethod
    def refuse(code: str, field: str, message: str) -> Any:
        raise rr.IllegalAction(Violation(code, field, (), message))

    def violations(
        self, heat: np.ndarray, vent: np.ndarray, frame_no: np.ndarray, begins: np.ndarray
    ) -> dict[int, dict[str, Any]]:
        """Return row -> its first violation."""
        found = {}
        for i in range(self.num_envs):
            if begins[i]:
                continue
            error = self.violation(i, heat[i], vent[i], frame_no[i])
            if error:
                code, field, index, message = error
                found[i] = {"code": code, "field": field, "index": index, "message": message}
        return found

    def violation(self, i: int, heat: np.ndarray, vent: Any, frame_no: Any) -> tuple[str, str, list[int], str] | None:
        if self.terminated[i] or self.truncated[i]:
            return "ended", "", [], "the episode has ended: reset it first"
        if frame_no != self.frame_no[i]:
            return "frame_no", "frame_no", [], f"frame_no is {frame_no}, the newest is {self.frame_no[i]}"
        for k in range(2):
            if not np.isfinite(heat[k]):
                return "not_finite", "action.heat", [k], f"heat[{k}] is {heat[k]}"
        for k in range(2):
            if not 0 <= heat[k] <= 1:
                return "range", "action.heat", [k], f"heat[{k}] is {heat[k]}, allowed are 0 to 1"
        if not 0 <= vent <= 3:
            return "range", "action.vent", [], f"vent is {vent}, allowed are 0 to 3"
        return None

    # -- Rows

    def restart(self) -> None:
        self.episode[:] = 0

    def generator(self, i: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, i, int(self.episode[i])])

    def begin(self, ids: Any) -> None:
        for i in ids:
            self.rngs[i] = self.generator(i)
            self.episode[i] += 1
            self.draw(i)
            self.frame_no[i] = self.terminated[i] = self.truncated[i] = 0
            self.heat[i], self.vent[i] = 0, 0

    def draw(self, i: int) -> None:
        rng = self.rngs[i]
        self.goal[i] = rng.uniform(360, 500, 2)
        self.zones[i] = rng.uniform(300, 420, 2)
        self.wall[i] = rng.uniform(290, 310)
        self.fuel[i] = rng.uniform(3, 5)

    def rows_to_begin(self) -> np.ndarray:
        over = (self.terminated | self.truncated) == 1
        return over if self.autoreset == "next_step" else np.zeros(self.num_envs, bool)

    def move(self, moves: np.ndarray, heat: np.ndarray, vent: np.ndarray) -> None:
        for i in np.flatnonzero(moves):
            gust = self.rngs[i].normal(0, 2, 2)
            power = np.where(self.fuel[i] > 0, heat[i], 0)
            flow = self.zones[i, ::-1] - self.zones[i]
            loss = (0.06 + 0.02 * vent[i]) * (self.zones[i] - self.wall[i])
            self.zones[i] = np.clip(self.zones[i] + 40 * power + 0.05 * flow - loss + gust, 250, 900)
            self.wall[i] += 0.05 * (self.zones[i].mean() - self.wall[i])
            self.fuel[i] = max(self.fuel[i] - 0.4 * power.sum(), 0)
            self.heat[i], self.vent[i] = heat[i], vent[i]

    def gaps(self) -> np.ndarray:
        return np.abs(self.zones.astype(float) - self.goal).max(1)

    def gains(self) -> np.ndarray:
        return -np.abs(self.zones.astype(float) - self.goal).mean(1) / 100

    def judge(self, moves: np.ndarray) -> None:
        self.terminated[moves & ((self.gaps() < 12) | (self.fuel == 0))] = 1
        self.truncated[moves & (self.terminated == 0) & (self.frame_no >= self.limit)] = 1

    def after(self, ended: np.ndarray, begins: np.ndarray, reason: str = "") -> tuple[np.ndarray, np.ndarray]:
        """Keep the ends, begin next episodes, and return the flags to show."""
        self.final = self.last(ended, reason) if ended.any() else None
        if self.autoreset == "next_step":
            self.begin(np.flatnonzero(begins))
        flags = self.terminated.copy(), self.truncated.copy()
        if self.autoreset == "same_step":
            self.begin(np.flatnonzero(ended))
        return flags

    # -- Tables

    def last(self, ended: np.ndarray, reason: str) -> dict[str, Any]:
        rows = np.flatnonzero(ended)
        final = {
            "index": rows, "frame_no": self.frame_no[rows],
            "observation": {name: value[rows] for name, value in self.seen().items()},
            "success": self.gaps()[rows] < 12, "metrics": {"gap_k": self.gaps()[rows]},
        }  # fmt: skip
        return final | ({"reason": reason} if reason else {})

    def seen(self) -> dict[str, np.ndarray]:
        return {"zone_temperature": self.zones.copy(), "goal": self.goal.copy(), "fuel": self.fuel.copy()}

    def row(self, i: int) -> dict[str, Any]:
        names = (
            "episode",
            "rngs",
            "frame_no",
            "terminated",
            "truncated",
            "zones",
            "goal",
            "fuel",
            "wall",
            "heat",
            "vent",
        )
        return {name: getattr(self, name)[i] for name in names}

    def extra(self) -> dict[str, Any]:
        extra: dict[str, Any] = {
            "applied": {"heat": self.heat.copy(), "vent": self.vent.copy()},
            "state": {"wall_temperature": self.wall.copy()},
        }
        if self.error:
            extra["error"] = copy.deepcopy(self.error)
        if self.final is not None:
            extra["final"] = copy.deepcopy(self.final)
        return extra

    def table(self, terminated: np.ndarray | None = None, truncated: np.ndarray | None = None) -> dict[str, Any]:
        return {
            "env_id": list(self.env_ids), "frame_no": self.frame_no.copy(), "observation": self.seen(),
            "extra_info": self.extra(),
            "terminated": (self.terminated if terminated is None else terminated).copy(),
            "truncated": (self.truncated if truncated is None else truncated).copy(),
        }  # fmt: skip

    def reward_table(self, table: dict[str, Any], reward: np.ndarray) -> dict[str, Any]:
        return {"env_id": list(self.env_ids), "frame_no": self.frame_no.copy(), "reward": reward.copy()}


@good("vector")
class KilnsThatWait(Kilns):
    """Kilns that stay in their last state until a reset of theirs."""

    autoreset = "disabled"
