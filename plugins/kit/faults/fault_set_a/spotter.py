"""A camera over a landscape as a class with NumPy arrays and images, with a description; and faults of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import StepExtra, check_action_table, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import NOTHING


@dataclass(frozen=True)
class Scene:
    """The state of an episode."""

    ground: np.ndarray
    place: np.ndarray
    goal: np.ndarray
    before: np.ndarray
    zoom: int = 0
    frame: int = 0
    noise: np.random.Generator = field(default_factory=np.random.default_rng)


@base
class Spotter:
    """A camera that flies over a landscape until it looks at a mark."""

    part = "environment"
    style = "plain class with NumPy arrays and images, described"
    mode = "training"
    observation = rr.Spec(
        "spotter_observation",
        (
            rr.Field("image", (24, 32, 3), "uint8", 0, 255, meaning="what the camera sees, RGB"),
            rr.Field("place", (2,), "float64", 0, 1, "m", "where the camera is, measured with noise", ("x", "y")),
            rr.Field("zoom", (), "int32", 0, 3, meaning="step of the lens"),
        ),
    )
    action = rr.Spec(
        "spotter_action",
        (
            rr.Field("target", (2,), "float64", 0, 1, "m", "where to fly; the last one counts a little", ("x", "y")),
            rr.Field("zoom", (), "int32", 0, 3, meaning="step of the lens"),
        ),
    )
    description = rr.EnvDescription(
        "Fly to the mark. The episode ends within 0.15 m of it, or after 18 steps.",
        rr.Field("reward", (), "float64", 0, 1, meaning="1 at the mark, else 0"),
        {"seed": "whole number from 0: determines landscape, start, mark and noise from here on"},
    )

    def __init__(self):
        self.env_id, self.rng, self.phase = uuid.uuid4().hex, np.random.default_rng(), "new"
        self.scene, self.table, self.screen = None, None, None

    @classmethod
    def made(cls):
        return cls()

    def reset(self, options=NOTHING):
        if self.phase == "closed":
            raise rr.EpisodeError("reset after close: make a new camera")
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(check_seed(options["seed"]))
        self.phase, self.scene = "running", self.drawn(self.rng)
        return self.look()

    def drawn(self, rng):
        ground, place = rng.integers(0, 256, (56, 64, 3), np.uint8), rng.random(2)
        return Scene(ground, place, (place + rng.uniform(0.3, 0.7, 2)) % 1, place, noise=rng)

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise rr.EpisodeError(f"step, and the camera is {self.phase}: reset it first")
        try:
            values = self.checked(check_action_table(action, self.env_id, self.scene.frame))
            StepExtra().read(extra_info)
        except rr.IllegalAction as refused:
            return self.refused(refused.violation.to_dict()), self.paid(0.0)
        self.scene = self.flown(self.scene, values)
        return self.look(), self.paid(float(self.there()))

    def checked(self, action):
        return self.action.validate(action, "action")

    def flown(self, scene, values):
        place = scene.place + 0.5 * (values["target"] - scene.place) + 0.1 * (scene.before - scene.place)
        before, zoom = self.kept(values["target"]), int(values["zoom"])
        return replace(scene, place=np.clip(place, 0, 1), before=before, zoom=zoom, frame=scene.frame + 1)

    def kept(self, target):
        return target.copy()

    def there(self):
        return np.linalg.norm(self.scene.place - self.scene.goal) < 0.15

    def view(self, scene):
        row, column = (scene.place * (32, 32)).astype(int)
        return scene.ground[row : row + 24, column : column + 32].copy()

    def measured(self, scene):
        return np.clip(scene.place + scene.noise.normal(0, 0.01, 2), 0, 1)

    def observed(self, scene):
        place = self.measured(scene)
        return {"image": self.view(scene), "place": place, "zoom": np.array(scene.zoom, np.int32)}

    def flags(self):
        over = self.there()
        return int(over), int(not over and self.scene.frame >= 18)

    def look(self):
        terminated, truncated = self.flags()
        if terminated or truncated:
            self.phase = "ended"
        self.table = {
            "env_id": self.env_id, "frame_no": self.scene.frame, "observation": self.observed(self.scene),
            "extra_info": {}, "terminated": terminated, "truncated": truncated,
        }  # fmt: skip
        return self.copied(self.table)

    def copied(self, table):
        return {**table, "observation": {name: value.copy() for name, value in table["observation"].items()}}

    def refused(self, error):
        return {**self.copied(self.table), "extra_info": {"error": error}}

    def paid(self, reward):
        return {"env_id": self.env_id, "frame_no": self.scene.frame, "reward": reward}

    def render(self, options=NOTHING):
        check_options(options, "render", "{}", ())
        self.screen = None if self.table is None else self.table["observation"]["image"].copy()

    def close(self):
        self.phase = "closed"


@fault("6.4-b", "steps")
class ImageOfFloats(Spotter):
    """The image is float32 from 0 to 1 and described as uint8."""

    def view(self, scene):
        return super().view(scene).astype(np.float32) / 255


@fault("6.4-b", "steps")
class ChannelsFirst(Spotter):
    """The image has its channels first and is described with its channels last."""

    def view(self, scene):
        return np.moveaxis(super().view(scene), -1, 0).copy()


@fault("6.2.3.1-T1.observation", "keeping")
class OneBuffer(Spotter):
    """All frames share one image buffer, so images that were returned earlier change."""

    def look(self):
        table = super().look()
        self.buffer = getattr(self, "buffer", np.zeros((24, 32, 3), np.uint8))
        self.buffer[:] = table["observation"]["image"]
        table["observation"]["image"] = self.buffer
        return table


@fault("contract", "keeping")
class ViewOfTheGround(Spotter):
    """The image is a view of the landscape, which a caller who draws on its image changes for good."""

    def view(self, scene):
        row, column = (scene.place * (32, 32)).astype(int)
        return scene.ground[row : row + 24, column : column + 32]

    def copied(self, table):
        return {**super().copied(table), "observation": dict(table["observation"])}


@fault("contract", "caller")
class KeepsTheCallersArray(Spotter):
    """The last target is kept as the caller's own array, and counts by what that holds in the next step."""

    def kept(self, target):
        return target


@fault("6.2.3.1-T1.terminated", "steps")
class FlagOfTwo(Spotter):
    """terminated is 2 at the mark, a code of its own, instead of 1."""

    def flags(self):
        terminated, truncated = super().flags()
        return 2 * terminated, truncated


@fault("contract", "refusals")
class ErrorStays(Spotter):
    """The error of a refused action stays in the tables of the legal steps after it."""

    error = None

    def refused(self, error):
        self.error = error
        return super().refused(error)

    def look(self):
        table = super().look()
        return table if self.error is None or not self.scene.frame else {**table, "extra_info": {"error": self.error}}


@fault("contract", "refusals")
class RefusalMeasuresAnew(Spotter):
    """The answer to a refused action has a new measurement under the old frame_no."""

    def refused(self, error):
        table = super().refused(error)
        table["observation"]["place"] = self.measured(self.scene)
        return table


def numbers(action, name="target"):
    """Return the numbers of a field as floats; None where there are none."""
    given = action.get(name) if isinstance(action, dict) else None
    try:
        given = np.asarray(given)
    except ValueError:
        return None
    return given.astype(float) if given.dtype.kind in "fiu" else None


@fault("6.2.1-6", "refusals")
class NanPasses(Spotter):
    """A target of NaN is executed, since it is neither below nor above its range."""

    def checked(self, action):
        if (target := numbers(action)) is not None:
            action = {**action, "target": np.where(np.isnan(target), 0, target)}
        return super().checked(action)


@fault("6.2.1-6", "refusals")
class FloatsAreCut(Spotter):
    """A zoom of 1.7 is executed as 1."""

    def checked(self, action):
        if isinstance(action, dict) and isinstance(action.get("zoom"), float | np.floating):
            action = {**action, "zoom": int(action["zoom"])}
        return super().checked(action)


@fault("6.2.1-6", "refusals")
class MoreIsIgnored(Spotter):
    """An action with a field that the description does not have is executed."""

    def checked(self, action):
        known = {name: action[name] for name in action if name in self.action} if isinstance(action, dict) else action
        return super().checked(known)


@fault("6.2.1-6", "refusals")
class LessIsZero(Spotter):
    """A missing field of the action counts as 0 and is executed."""

    def checked(self, action):
        return super().checked({"target": np.zeros(2), "zoom": 0, **action} if isinstance(action, dict) else action)


@fault("6.2.1-6", "refusals")
class Broadcasts(Spotter):
    """A single number for the two of target is executed."""

    def checked(self, action):
        if (target := numbers(action)) is not None and target.shape in ((), (1,)):
            action = {**action, "target": np.broadcast_to(target, (2,))}
        return super().checked(action)


@fault("6.2.1-6", "refusals")
class ChecksTheFirst(Spotter):
    """Only the first number of target is checked; the second may be out of range and is executed."""

    def checked(self, action):
        if (target := numbers(action)) is not None and target.shape == (2,) and np.isfinite(target).all():
            action = {**action, "target": np.array([target[0], np.clip(target[1], 0, 1)])}
        return super().checked(action)


@fault("6.2.1-3", "borders")
class BorderIsOutside(Spotter):
    """An action exactly at the upper end of its described range is refused."""

    def checked(self, action):
        values = super().checked(action)
        if (values["target"] >= 1).any():
            raise rr.IllegalAction(rr.Violation("range", "action.target", (), "action.target must be below 1"))
        return values


@fault("6.2.3.1-T1.truncated", "steps")
class FlagSurvivesTheReset(Spotter):
    """truncated is still 1 in the first frame after an episode that the time limit ended."""

    last = 0

    def reset(self, options=NOTHING):
        return {**super().reset(options), "truncated": self.last}

    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        self.last = table["truncated"]
        return table, reward


@fault("contract", "order")
class ResetAfterClose(Spotter):
    """A closed camera is reset and goes on."""

    def reset(self, options=NOTHING):
        self.phase = "new" if self.phase == "closed" else self.phase
        return super().reset(options)


@fault("contract", "order")
class ClosedTwice(Spotter):
    """A second close fails."""

    def close(self):
        if self.phase == "closed":
            raise RuntimeError("the camera is closed already")
        super().close()
