"""Masks, messages and what a step takes beside the action: each world is correct but for its planted fault."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import Field, IllegalAction, Spec, Violation
from plugins.kit.tests.carts import Carts
from plugins.kit.tests.diary import Diary
from plugins.kit.tests.lander import Lander
from plugins.kit.tests.rows_of_landers import Landers
from rlenv_kit import check_environment, check_source, check_vector
from rlenv_robot.env import Environment
from rlenv_robot.tables import StepExtra
from rlenv_robot.tasks.agents import Agent
from rlenv_robot.world import EnvDescription, TimeStep, TurnBasedWorld, World

pytestmark = pytest.mark.requirement("R4.3")


class Heaps(TurnBasedWorld):
    """A game in which two agents take 1 to 3 stones in turn, and the last stone wins; ``fault`` names its fault."""

    players, zero_sum, name = ("first", "second"), True, "heaps"
    observation = Spec("heaps", (Field("stones", (), "int32", 0, 20, "1", "that are left"),))
    action = Spec("heaps_action", (Field("count", (), "int32", 1, 3, "1", "stones to take"),))
    masks = Spec("heaps_masks", (Field("count", (3,), "uint8", 0, 1, "1", "1 where so many are left"),))
    description = EnvDescription(
        "Take stones.", Field("reward", (), "int32", 0, 1, "1", "1 for the mover who won"), {"seed": "whole number"},
        {}, {"agent": "whose turn it is", "action_mask": "what may be taken"}, {"few": "fewer stones are left"},
    )  # fmt: skip

    def __init__(self, fault: str = "") -> None:
        self.fault, self.rng, self.stones, self.turn = fault, np.random.default_rng(), 0, 0

    def reset(self, options: Any) -> TimeStep:
        if set(options) - {"seed"}:
            raise ValueError(f"options are {sorted(options)}, allowed is seed")
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        self.stones, self.turn = int(self.rng.integers(10, 20)), 0
        return self.seen(0)

    def seen(self, reward: int) -> TimeStep:
        mask = (np.arange(1, 4) <= self.stones).astype(np.uint8)
        mask = {"all": np.ones(3, np.uint8), "strict": mask * (1, 0, 1), "short": mask[:2], "two": mask * 2}.get(
            self.fault, mask
        )
        extra: dict[str, Any] = {"agent": self.players[self.turn], "action_mask": {"count": mask.astype(np.uint8)}}
        if self.fault == "gone" and self.turn:
            del extra["action_mask"]
        if self.fault == "player":
            extra["agent"] = f"player {self.turn}"
        return TimeStep({"stones": np.array(self.stones, np.int32)}, reward, self.stones == 0, False, extra)

    def step(self, action: Any, extra_info: Any) -> TimeStep:
        count = int(action["count"])
        if count > self.stones:
            if self.fault == "silent":
                return self.seen(0)
            raise IllegalAction(Violation("few", "action.count", (), f"{self.stones} stones are left"))
        self.stones, self.turn = self.stones - count, self.turn ^ 1
        return self.seen(int(self.stones == 0))


class Ferries(World):
    """Two ferries that tell each other a number; ``charge`` is given beside the action."""

    name = "ferries"
    agents = (
        Agent("north", {"place": "north_place"}, {"go": "north_go", "say": "north_say"}, "say"),
        Agent("south", {"place": "south_place"}, {"go": "south_go", "say": "south_say"}, "say"),
    )
    observation = Spec("ferries", tuple(Field(f"{a}_place", (), "float32", -9, 9, "m", a) for a in ("north", "south")))
    action = Spec("ferries_action", tuple(
        Field(f"{a}_{what}", (), "float32", -1, 1, "m", f"{what} of {a}") for a in ("north", "south")
        for what in ("go", "say")
    ))  # fmt: skip
    description = EnvDescription(
        "Meet.", Field("reward", (), "float64", -18, 0, "m", "minus the distance"), {"seed": "whole number"}
    )
    step_extra = StepExtra(Spec("charge", (Field("charge", (), "float64", 0, 1, "1", "battery"),)), {"charge": 1})

    def __init__(self, fault: str = "") -> None:
        self.fault, self.rng, self.told = fault, np.random.default_rng(), dict[str, Any]()

    def reset(self, options: Any) -> TimeStep:
        if set(options) - {"seed"}:
            raise ValueError(f"options are {sorted(options)}, allowed is seed")
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        self.place, self.count, self.before = self.rng.uniform(-1, 1, 2), 0, dict[str, Any]()
        if self.fault != "kept":
            self.told = {}
        return self.seen()

    def seen(self) -> TimeStep:
        pairs = zip(self.observation.names, self.place, strict=True)
        seen = {name: np.array(value, np.float32) for name, value in pairs}
        away = -abs(float(self.place[0] - self.place[1]))
        extra = {"agents": {agent.name: dict(agent.sees) for agent in self.agents}, "messages": self.told}
        return TimeStep(seen, {"north": away, "south": away}, False, self.count >= 20, extra)

    def step(self, action: Any, extra_info: Any) -> TimeStep:
        way = np.array([float(action["north_go"]), float(action["south_go"])]) * float(extra_info["charge"])
        self.place = np.clip(self.place + 0.2 * way, -9, 9)
        self.count += 1
        north, south = np.array(action["north_say"]), np.array(action["south_say"])
        told = {"north": {"south": south}, "south": {"north": north}}
        told = {
            "own": {"north": {"north": north}, "south": {"south": south}},
            "swapped": {"north": {"south": north}, "south": {"north": south}},
            "scaled": {"north": {"south": south * 10}, "south": {"north": north}},
            "nobody": {"north": {"south": south}, "east": {"north": north}},
            "late": self.before,
        }.get(self.fault, told)
        self.before = {"north": {"south": south}, "south": {"north": north}}
        self.told = told
        return self.seen()


class Charged(Lander):
    """A lander that takes ``charge`` beside the action, and checks nothing of it."""

    step_extra = Ferries.step_extra

    def step(self, action, extra_info=None):
        return super().step(action)


class FirstGoalStays(Lander):
    """The first episode of an instance decides the height at which all begin."""

    first = None

    def begin(self):
        super().begin()
        self.first = self.height if self.first is None else self.first
        self.height = self.first


class SeedsInRender(Lander):
    """Rendering seeds the process's generator."""

    def render(self, options=None):
        np.random.seed(0)


class NoLastPicture(Lander):
    """Rendering fails in the last frame."""

    def render(self, options=None):
        if self.phase == "ended":
            raise AttributeError("there is no frame")


class KeepsFile(Lander):
    """A file stays open after close, until the last reference goes."""

    def __init__(self):
        super().__init__()
        weakref.finalize(self, os.close, os.open("/dev/null", os.O_RDONLY))


class WrapsLegs(Lander):
    """Numbers wrap around before their range is looked at."""

    def step(self, action, extra_info=None):
        try:
            legs = np.asarray(action["action"]["legs"])
            if legs.dtype.kind in "iu" and legs.shape == ():
                action = {**action, "action": {**action["action"], "legs": legs.astype(np.uint8)}}
        except (TypeError, KeyError, IndexError):
            pass
        return super().step(action)


class Callers(Carts):
    """Two agents of a stranger's environment who send each other a text; no description says where it arrives."""

    action = Spec("callers_action", (
        *Carts.action,
        Field("left_say", (), "text", meaning="to the right cart", characters=16),
        Field("right_say", (), "text", meaning="to the left cart", characters=16),
    ))  # fmt: skip
    description = replace(Carts.description, extra_info={**Carts.description.extra_info, "inbox": "receiver -> text"})
    heard: dict[str, str]

    def begin(self) -> None:
        super().begin()
        self.heard = self.before = {}

    def advance(self, values: Any) -> None:
        super().advance(values)
        self.before, self.heard = self.heard, {"left": str(values["right_say"]), "right": str(values["left_say"])}

    def inbox(self) -> dict[str, str]:
        return self.heard

    def extra(self) -> Any:
        return {**super().extra(), "inbox": self.inbox()}


class CallersCut(Callers):
    def inbox(self) -> dict[str, str]:
        return {name: text[:3] for name, text in self.heard.items()}


class CallersLate(Callers):
    def inbox(self) -> dict[str, str]:
        return self.before


def _of(world: Callable[[str], World], fault: str) -> Callable[[], Environment]:
    return lambda: Environment(world(fault))


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    **{name: (_of(Heaps, name), "masks") for name in ("all", "strict", "short", "two", "gone", "silent")},
    "player": (_of(Heaps, "player"), "agents"),
    **{name: (_of(Ferries, name), "messages") for name in ("own", "swapped", "scaled", "nobody", "late")},
    "CallersCut": (CallersCut, "messages"),
    "CallersLate": (CallersLate, "messages"),
    "kept": (_of(Ferries, "kept"), "equal starts"),
    "Charged": (Charged, "step extra"),
    "FirstGoalStays": (FirstGoalStays, "two instances"),
    "SeedsInRender": (SeedsInRender, "render"),
    "NoLastPicture": (NoLastPicture, "render"),
    "KeepsFile": (KeepsFile, "leftovers"),
    "WrapsLegs": (WrapsLegs, "refusals"),
}
"""Fault -> the broken environment, and the key of the check that must see it."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen_by_its_check(name: str) -> None:
    made, key = FAULTS[name]
    (check,) = check_environment(lambda: made(), only=key).checks
    assert (check.key, check.passed) == (key, False)


def test_a_strangers_messages_are_not_accused() -> None:
    report = check_environment(lambda: Callers())
    report.raise_if_failed()
    assert next(check for check in report.checks if check.key == "messages").passed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all", "nobody", "Charged"])
def test_a_fault_gives_one_finding(name: str) -> None:
    made, key = FAULTS[name]
    assert [check.key for check in check_environment(lambda: made()).failures] == [key]


@pytest.mark.parametrize("world", [Heaps, Ferries])
def test_the_correct_world_is_not_accused(world: Callable[[], World]) -> None:
    check_environment(lambda: Environment(world())).raise_if_failed()


class Listed(Landers):
    """A batch whose tables hold lists."""

    def stack(self, tables, flags=True):
        table = super().stack(tables, flags)
        seen = {name: value.tolist() for name, value in table["observation"].items()}
        return {**table, "observation": seen, "frame_no": np.asarray(table["frame_no"]).tolist()}


def test_lists_in_a_batch_are_noted() -> None:
    report = check_vector(Listed)
    report.raise_if_failed()
    assert any("lists" in note.text for note in report.notes)


class AllInEpisodeZero(Diary):
    """The steps' number of the episode is always 0."""

    def sample_trajectories(self, trajectory_size, extra_info=None):
        tables = super().sample_trajectories(trajectory_size, extra_info or {})
        for table in tables:
            steps = table["steps_set"]
            steps["extra_info"] = {**steps.get("extra_info", {}), "episode": np.zeros(len(steps["env_id"]), int)}
        return tables


class NumbersByPlace(Diary):
    """trajectory_id is the place in the batch."""

    def sample_trajectories(self, trajectory_size, extra_info=None):
        tables = super().sample_trajectories(trajectory_size, extra_info or {})
        return [{**table, "trajectory_id": place} for place, table in enumerate(tables)]


class StateStays(Diary):
    """init takes a state, and stays in the first one."""

    def init(self, options=None):
        super().init({name: value for name, value in (options or {}).items() if name not in ("episode", "frame")})


@pytest.mark.parametrize(
    ("made", "key"),
    [(AllInEpisodeZero, "trajectories"), (NumbersByPlace, "trajectories"), (StateStays, "actions")],
)
def test_a_fault_of_source_data_is_found(made: Callable[[], Any], key: str) -> None:
    (check,) = check_source(made, only=key).checks
    assert (check.key, check.passed) == (key, False)
