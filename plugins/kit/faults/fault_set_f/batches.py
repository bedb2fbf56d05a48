"""Two correct batches: floats on waves as arrays over rows, and riddles of two agents with an object for each row."""

from __future__ import annotations

import uuid
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hal import Field, Spec
from plugins.kit.faults.fault_set_f.common import NOTHING, check_turn, check_whole, good, illegal
from rlenv_robot.vector.validate import check_batch, check_ids
from rlenv_robot.world import EnvDescription

Arrays = dict[str, np.ndarray]
SEED = "whole number from 0: fixes all episodes from here on"
IDS = "ascending numbers of the environments that begin an episode; by default all"


class Rows:
    """The tables, resets, ends and snapshots of both; a subclass brings rows and what happens in them."""

    observation: Spec
    action: Spec
    description: EnvDescription
    autoreset: Literal["same_step", "next_step", "disabled"] = "same_step"
    mode = "training"

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.env_ids = num_envs, self.new_ids(num_envs)
        self.seed = int(np.random.SeedSequence().generate_state(1)[0])
        self.episodes, self.frame = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int32)
        self.over, self.flags = np.ones(num_envs, bool), np.zeros((2, num_envs), bool)
        self.begun = self.closed = False
        self.allocate()

    def new_ids(self, num_envs: int) -> list[str]:
        return [uuid.uuid4().hex for _ in range(num_envs)]

    # -- what a subclass brings ------------------------------------------------------------------------

    def allocate(self) -> None:
        raise NotImplementedError

    def draw(self, row: int, rng: np.random.Generator) -> None:
        """Begin an episode in a row."""
        raise NotImplementedError

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        """Move some rows; return the reward of all."""
        raise NotImplementedError

    def seen(self) -> Arrays:
        raise NotImplementedError

    def more(self, moved: np.ndarray, values: Arrays | None) -> dict[str, Any]:
        raise NotImplementedError

    def ended(self) -> np.ndarray:
        """Return terminated and truncated, (2, N)."""
        raise NotImplementedError

    def save(self, row: int) -> Any:
        raise NotImplementedError

    def load(self, row: int, saved: Any) -> None:
        raise NotImplementedError

    # -- resets ----------------------------------------------------------------------------------------

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        check_turn(not self.closed, "reset")
        if not isinstance(options, dict | type(NOTHING)) or set(options) - {"seed", "ids"}:
            raise ValueError(f"reset options are {options!r:.80}, allowed are seed and ids")
        check_whole(options, "seed", 0, 2**62)
        ids = None if options.get("ids") is None else self.chosen(options["ids"])
        check_turn(ids is None or self.begun, "reset of some")
        if "seed" in options:
            self.restart(options["seed"])
        self.begin(np.arange(self.num_envs) if ids is None else ids)
        self.begun = True
        return self.table(self.flags, self.more(np.zeros(self.num_envs, bool), None))

    def chosen(self, ids: Any) -> np.ndarray:
        return check_ids(ids, self.num_envs)

    def restart(self, seed: int) -> None:
        self.seed = seed
        self.episodes[:] = 0

    def begin(self, rows: np.ndarray) -> None:
        for row in rows.tolist():
            self.draw(row, self.generator(row))
            self.episodes[row] += 1
        self.frame[rows] = 0
        self.over[rows] = self.flags[:, rows] = False

    def generator(self, row: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, row, int(self.episodes[row])])

    # -- steps -----------------------------------------------------------------------------------------

    def step(self, action: Any, extra_info: Any = NOTHING) -> tuple[dict[str, Any], dict[str, Any]]:
        check_turn(self.begun and not self.closed, "step")
        if extra_info:
            raise illegal("unknown", "extra_info", "extra_info is empty here")
        waiting = self.over.copy() if self.autoreset == "next_step" else np.zeros(self.num_envs, bool)
        values, errors = self.checked(action, waiting)
        moved = ~waiting
        moved[list(errors)] = False
        reward = self.act(moved, values)
        self.frame += moved
        ended = self.ended() & moved
        extra = self.finish(ended)
        if waiting.any():
            self.begin(np.flatnonzero(waiting))
        extra |= self.more(moved, values)
        if errors:
            extra["error"] = errors
        table = self.table(ended | self.flags, extra)
        return table, {"env_id": list(self.env_ids), "frame_no": self.frame.copy(), "reward": reward}

    def checked(self, action: Any, waiting: np.ndarray) -> tuple[Arrays, dict[int, Any]]:
        """Return copies of the values, and the errors of rows."""
        over = self.over & ~waiting
        values, errors = check_batch(self.action, action, self.env_ids, self.frame, over, waiting)
        return {name: np.array(value) for name, value in values.items()}, errors

    def finish(self, ended: np.ndarray) -> dict[str, Any]:
        """Return ``final`` of the rows that end, and begin their next episodes where these begin at once."""
        ids = np.flatnonzero(ended.any(axis=0))
        if not len(ids):
            return {}
        last = {name: value[ids].copy() for name, value in self.seen().items()}
        final = {"index": ids, "frame_no": self.frame[ids], "observation": last}
        self.over[ids], self.flags[:, ids] = True, ended[:, ids]
        if self.autoreset == "same_step":
            self.begin(ids)
        return {"final": final}

    def table(self, flags: np.ndarray, extra: dict[str, Any]) -> dict[str, Any]:
        return {
            "env_id": list(self.env_ids),
            "frame_no": self.frame.copy(),
            "observation": self.seen(),
            "extra_info": extra,
            "terminated": flags[0].astype(np.int32),
            "truncated": flags[1].astype(np.int32),
        }

    # -- snapshots and the end -------------------------------------------------------------------------

    def snapshot(self, ids: Any = None) -> list[Any]:
        check_turn(self.begun and not self.closed, "snapshot")
        return [self.kept(row) for row in (range(self.num_envs) if ids is None else self.chosen(ids).tolist())]

    def kept(self, row: int) -> Any:
        counts = (int(self.episodes[row]), int(self.frame[row]), bool(self.over[row]), self.flags[:, row].copy())
        return (self.seed, counts, deepcopy(self.save(row)))

    def restore(self, snapshot: list[Any], ids: Any = None) -> dict[str, Any]:
        check_turn((self.begun or ids is None) and not self.closed, "restore")
        rows = list(range(self.num_envs)) if ids is None else self.chosen(ids).tolist()
        if len(snapshot) not in (1, len(rows)):
            raise ValueError(f"the snapshot has {len(snapshot)} environments, wanted are {len(rows)}")
        for place, row in enumerate(rows):
            seed, counts, saved = snapshot[place % len(snapshot)]
            self.seed = seed if ids is None else self.seed
            self.episodes[row], self.frame[row], self.over[row], self.flags[:, row] = counts
            self.load(row, deepcopy(saved))
        self.begun = True
        return self.table(self.flags, self.more(np.zeros(self.num_envs, bool), None))

    def close(self) -> None:
        self.closed = True


@good("vector")
class Floats(Rows):
    """Floats that a winch keeps at a depth under waves, as arrays over rows; the next episode begins at once."""

    observation = Spec(
        "float_seen",
        (
            Field("depth", (2,), "float64", -10, 10, "m", "of both ends, below the mark", ("bow", "stern")),
            Field("wave", (), "float64", -1, 1, "m", "height of the last wave"),
        ),
    )
    action = Spec("float_done", (Field("winch", (2,), "float64", -1, 1, "m", "rope to let out", ("bow", "stern")),))
    description = EnvDescription(
        "Keep both ends of a float at its mark, for 12 steps. It is lost below 4 m.",
        Field("reward", (), "float64", -20, 0, "m", "minus the distances of both ends from the mark"),
        {"seed": SEED, "ids": IDS},
        {},
        {"state": "hidden from the agent: the swell, m", "final": "the environments that ended, and their last frames"},
    )

    def allocate(self) -> None:
        self.depth, self.wave = np.zeros((self.num_envs, 2)), np.zeros(self.num_envs)
        self.swell, self.rngs = np.zeros(self.num_envs), [np.random.default_rng() for _ in range(self.num_envs)]

    def draw(self, row: int, rng: np.random.Generator) -> None:
        self.rngs[row] = rng
        self.depth[row], self.wave[row], self.swell[row] = rng.uniform(-2, 2, 2), 0.0, rng.uniform(0.2, 0.6)

    def waves(self, moved: np.ndarray) -> np.ndarray:
        drawn = self.wave.copy()
        for row in np.flatnonzero(moved).tolist():
            drawn[row] = self.swell[row] * self.rngs[row].uniform(-1, 1)
        return drawn

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        self.wave = self.waves(moved)
        change = values["winch"] + self.wave[:, None]
        self.depth[moved] = np.clip(self.depth + change, -10, 10)[moved]
        return np.where(moved, -np.abs(self.depth).sum(axis=1), 0.0)

    def seen(self) -> Arrays:
        return {"depth": self.depth.copy(), "wave": self.wave.copy()}

    def more(self, moved: np.ndarray, values: Arrays | None) -> dict[str, Any]:
        return {"state": {"swell": self.swell.copy()}}

    def ended(self) -> np.ndarray:
        lost = (self.depth > 4).any(axis=1)
        return np.array([lost, ~lost & (self.frame >= 12)])

    def save(self, row: int) -> Any:
        return self.depth[row], self.wave[row], self.swell[row], self.rngs[row]

    def load(self, row: int, saved: Any) -> None:
        self.depth[row], self.wave[row], self.swell[row], self.rngs[row] = saved


WORDS = ("crane", "otter", "maple", "comet", "fjord")


@dataclass
class Riddle:
    """One row."""

    word: str = ""
    secret: int = 0
    rounds: int = 0
    tried: list[int] = field(default_factory=list)


@good("vector")
class Riddles(Rows):
    """Number riddles of a teller and a guesser who write to each other, an object for each row; next_step."""

    observation = Spec(
        "riddle_seen",
        (
            Field("word", (), "text", meaning="name of the riddle, which only the teller sees", characters=8),
            Field("last_guess", (), "int32", -1, 11, "1", "number that was guessed last, -1 for none"),
            Field("rounds", (), "int32", 0, 6, "1", "guesses so far"),
        ),
    )
    action = Spec(
        "riddle_done",
        (
            Field("guess", (), "int32", 0, 11, "1", "number that the guesser guesses"),
            Field("hint", (), "text", meaning="message of the teller to the guesser", characters=10),
            Field("plea", (), "text", meaning="message of the guesser to the teller", characters=10),
        ),
    )
    description = EnvDescription(
        "A guesser finds a number with the hints of a teller. It has six guesses, and guesses no number twice.",
        Field("reward", (), "float64", -1, 1, "1", "of each agent: guesser 1 if right, else -0.1; teller half of it"),
        {"seed": SEED, "ids": IDS},
        {},
        {
            "agents": "agent -> its own name -> name in the whole observation",
            "messages": "receiver -> sender -> texts, empty for a row without one",
            "action_mask": "guess -> which numbers were not guessed yet",
            "state": "hidden from the agents: the number",
            "final": "the environments that ended, and their last frames",
        },
        {"tried": "the number was guessed before"},
    )
    autoreset = "next_step"

    def allocate(self) -> None:
        self.rows = [Riddle() for _ in range(self.num_envs)]

    def draw(self, row: int, rng: np.random.Generator) -> None:
        self.rows[row] = Riddle(str(rng.choice(WORDS)), int(rng.integers(0, 12)))

    def checked(self, action: Any, waiting: np.ndarray) -> tuple[Arrays, dict[int, Any]]:
        values, errors = super().checked(action, waiting)
        for place, row in enumerate(self.rows):
            guess = int(values["guess"][place])
            if not waiting[place] and place not in errors and guess in row.tried:
                error = illegal("tried", "action.guess", f"action.guess is {guess}, which was guessed before")
                errors[place] = error.violation.to_dict()
        return values, errors

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        gained = np.zeros(self.num_envs)
        for place in np.flatnonzero(moved).tolist():
            row, guess = self.rows[place], int(values["guess"][place])
            row.tried.append(guess)
            row.rounds += 1
            gained[place] = 1.0 if guess == row.secret else -0.1
        return {"teller": gained / 2, "guesser": gained}

    def seen(self) -> Arrays:
        return {
            "word": np.array([row.word for row in self.rows], "<U8"),
            "last_guess": np.array([row.tried[-1] if row.tried else -1 for row in self.rows], np.int32),
            "rounds": np.array([row.rounds for row in self.rows], np.int32),
        }

    def more(self, moved: np.ndarray, values: Arrays | None) -> dict[str, Any]:
        extra: dict[str, Any] = {
            "agents": {
                "teller": {"word": "word", "guess": "last_guess"},
                "guesser": {"guess": "last_guess", "rounds": "rounds"},
            },
            "action_mask": {"guess": self.mask()},
            "state": {"secret": np.array([row.secret for row in self.rows], np.int32)},
        }
        if values is not None and moved.any():
            extra["messages"] = self.messages(moved, values)
        return extra

    def mask(self) -> np.ndarray:
        return np.array([[int(n not in row.tried) for n in range(12)] for row in self.rows], np.uint8)

    def messages(self, moved: np.ndarray, values: Arrays) -> dict[str, Any]:
        hint, plea = (np.where(moved, values[name], "").astype("<U10") for name in ("hint", "plea"))
        return {"guesser": {"teller": hint}, "teller": {"guesser": plea}}

    def ended(self) -> np.ndarray:
        found = np.array([row.secret in row.tried for row in self.rows])
        return np.array([found, [row.rounds >= 6 for row in self.rows] & ~found])

    def save(self, row: int) -> Any:
        return self.rows[row]

    def load(self, row: int, saved: Any) -> None:
        self.rows[row] = saved


@good("vector")
class WaitingFloats(Floats):
    """Floats that stay in their last state until a reset of theirs, in arrays of Fortran's order."""

    autoreset = "disabled"

    def seen(self) -> Arrays:
        return {name: np.asfortranarray(value) for name, value in super().seen().items()}


@good("vector")
class EagerRiddles(Riddles):
    """Riddles whose next episode begins at once, with read-only tables and further entries of the ends."""

    autoreset = "same_step"

    def finish(self, ended: np.ndarray) -> dict[str, Any]:
        secrets = np.array([row.secret for row in self.rows], np.int32)
        finished = super().finish(ended)
        if finished:
            finished["final"]["secret"] = secrets[finished["final"]["index"]]
        return finished

    def seen(self) -> Arrays:
        seen = super().seen()
        for value in seen.values():
            value.setflags(write=False)
        return seen
