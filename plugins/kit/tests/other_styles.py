"""Correct environments, robots, batches and source data in styles that the standard leaves open."""

from __future__ import annotations

import asyncio
import collections
import queue
import threading
import time
import types

import numpy as np

from hal import Field, RobotSpec, Spec
from plugins.kit.tests.carts import Carts
from plugins.kit.tests.diary import Diary
from plugins.kit.tests.gantry import Gantry
from plugins.kit.tests.lander import Lander
from plugins.kit.tests.rows_of_landers import Landers
from rlenv_robot.world import NOTHING, EnvDescription


class ListsForArrays(Lander):
    """Lists and plain numbers for arrays, NumPy's whole numbers for flags and frame_no."""

    def seen(self):
        return {name: value.tolist() for name, value in super().seen().items()}

    def table(self):
        table = super().table()
        for key in ("frame_no", "terminated", "truncated"):
            table[key] = np.int32(table[key])
        return table


class LifelongFrames(Lander):
    """frame_no counts over the instance's life, as `environment instance's frame number` may be read."""

    born = 0

    def reset(self, options=NOTHING):
        self.born += self.frame_no - self.born if self.phase != "new" else 0
        before = self.frame_no
        super().reset(options)
        self.born = self.frame_no = before + 1 if self.seen_before() else 0
        return self.table()

    resets = 0

    def seen_before(self):
        self.resets += 1
        return self.resets > 1

    def ends(self):
        landed = int(self.height <= 0)
        return landed, int(not landed and self.frame_no - self.born >= 60)


class CrashError(Exception):
    """Derives from nothing that the project knows."""


class OwnErrors(Lander):
    """Errors as text, misuse as an exception of its own, no description, no render, no stop."""

    description = None
    render = None
    stop = None

    def reset(self, options=NOTHING):
        try:
            return super().reset(options)
        except (ValueError, RuntimeError) as error:
            raise CrashError(str(error)) from None

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise CrashError("not now")
        return super().step(action, extra_info)

    def refusal(self, problem):
        return super().refusal(f"illegal action: {problem['message']}")


class Table(collections.OrderedDict):
    """A dictionary of another class."""


class ReadOnly(Lander):
    """Tables of another class, an observation that nobody can write into, a proxy for extra_info."""

    def table(self):
        table = super().table()
        for value in table["observation"].values():
            value.setflags(write=False)
        table["observation"] = types.MappingProxyType(table["observation"])
        table["extra_info"] = types.MappingProxyType(dict(table["extra_info"]))
        return Table(table)


class ByGenerator(Lander):
    """The episode is a generator that each step resumes."""

    def begin(self):
        super().begin()
        self.episode = self.run()
        next(self.episode)

    def run(self):
        values = yield
        while True:
            super().advance(values)
            values = yield

    def advance(self, values):
        self.episode.send(values)


class ByThread(Lander):
    """A thread simulates; close ends it."""

    def __init__(self):
        super().__init__()
        self.thread = None

    def begin(self):
        super().begin()
        if self.thread is None:
            self.tasks, self.results = queue.Queue(), queue.Queue()
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()

    def work(self):
        while (values := self.tasks.get()) is not None:
            self.results.put(super().advance(values))

    def advance(self, values):
        self.tasks.put(values)
        self.results.get(timeout=10)

    def close(self):
        super().close()
        if self.thread is not None:
            self.tasks.put(None)
            self.thread.join(10)
            self.thread = None


class ByAsyncio(Lander):
    """An event loop of its own simulates; close ends it."""

    loop = None

    def advance(self, values):
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.later(values))

    async def later(self, values):
        await asyncio.sleep(0)
        super().advance(values)

    def close(self):
        super().close()
        if self.loop is not None:
            self.loop.close()
            self.loop = None


class LazyAndSlow(Lander):
    """Make everything at the first reset, which takes 0.3 s; a later one takes 0.05 s."""

    def begin(self):
        time.sleep(0.05 if hasattr(self, "engine") else 0.3)
        self.engine = object()
        super().begin()


class OddTypes(Lander):
    """uint64 beyond 2**53, int8, bounds by element, a one-sided range, a shape of three axes."""

    observation = Spec(
        "odd_observation",
        (
            Field("ticks", (), "uint64", 2**60, 2**61, "1", "since some day"),
            Field("level", (3,), "int8", (-5, 0, 5), (-1, 4, 9), "1", "of three tanks"),
            Field("image", (4, 3, 2), "uint8", 0, 255, "1", "a picture"),
            Field("energy", (), "float32", 0, unit="J", meaning="that is left"),
        ),
    )
    action = Spec(
        "odd_action",
        (
            Field("keys", (2, 2), "int16", -3, 7, "1", "that are pressed"),
            Field("power", (), "float64", low=0, unit="W", meaning="of the engine"),
        ),
    )

    def advance(self, values):
        self.last = values
        self.height -= 0.5 + 0.01 * float(values["keys"].sum()) + min(float(values["power"]), 1) * 0.1

    def seen(self):
        return {
            "ticks": np.array(2**60 + self.frame_no * 2**40 + 1, np.uint64),
            "level": np.array([-3, self.frame_no % 5, 7], np.int8),
            "image": np.full((4, 3, 2), int(max(self.height, 0)), np.uint8),
            "energy": np.array(max(self.height, 0) * 1e3, np.float32),
        }

    def ends(self):
        landed = int(self.height <= 0)
        return landed, int(not landed and self.frame_no >= 60)

    def reward(self):
        return 1


class CoinFlip(Lander):
    """One step an episode, no observation that moves, a whole number as reward, no extra_info at all."""

    observation = Spec("coin_observation", (Field("stake", (), "int32", 1, 9, "1", "that is won or lost"),))
    action = Spec("coin_action", (Field("heads", (), "int64", 0, 1, "1", "1 bets on heads"),))
    description = EnvDescription("Guess.", Field("reward", (), "int32", -9, 9, "1", "the stake"))

    def begin(self):
        self.stake, self.side = int(self.rng.integers(1, 10)), int(self.rng.integers(0, 2))

    def advance(self, values):
        self.hit = int(values["heads"]) == self.side

    def ends(self):
        return 1, 0

    def reward(self):
        return self.stake if self.hit else -self.stake

    def refusal(self, problem):
        table = self.table()
        table["extra_info"] = {"error": problem}
        return table, self.reward_table(0)

    def seen(self):
        return {"stake": np.array(self.stake, np.int32)}

    def table(self):
        table = super().table()
        del table["extra_info"]
        return table

    def render(self, options=NOTHING):
        return None


class Endless(Lander):
    """An episode never ends."""

    def advance(self, values):
        super().advance(values)
        if self.height < 1:
            self.height, self.velocity = 30.0, np.zeros(2)

    def ends(self):
        return 0, 0


class SlotsOnly:
    """Everything by composition, with keyword defaults of None, and tables built anew by a function."""

    __slots__ = ("_inner",)
    observation, action, description = Lander.observation, Lander.action, Lander.description

    def __init__(self):
        self._inner = Lander()

    @property
    def env_id(self):
        return self._inner.env_id

    def reset(self, options=None):
        return self._inner.reset({} if options is None else options)

    def step(self, action, extra_info=None):
        return self._inner.step(action, {} if extra_info is None else extra_info)

    def close(self):
        self._inner.close()


class SeedsOnlyOnce(Lander):
    """A seed fixes the starts from here on: the generator also hands out numbers that nobody sees."""

    def begin(self):
        self.rng.random(1000)
        super().begin()

    def gust(self):
        self.rng.random(3)
        return super().gust()


class CartsInOrder(Carts):
    """Agents' rewards in another order, as NumPy numbers; own observations as lists."""

    def reward(self):
        return {name: np.float64(value) for name, value in reversed(super().reward().items())}

    def own(self):
        return {name: {key: value.tolist() for key, value in values.items()} for name, values in super().own().items()}


ENVIRONMENTS = {
    of.__name__: of
    for of in (
        Lander, Carts, ListsForArrays, LifelongFrames, OwnErrors, ReadOnly, ByGenerator, ByThread, ByAsyncio,
        LazyAndSlow, OddTypes, CoinFlip, Endless, SlotsOnly, SeedsOnlyOnce, CartsInOrder,
    )
}  # fmt: skip


# -- robots ----------------------------------------------------------------------------------------------


class NoisyGantry(Gantry):
    """Measurements with noise of its own generator, that a seed sets."""

    def sensors(self):
        noisy = super().sensors()
        noisy["place"] = noisy["place"] + self.rng.normal(0, 2e-4, 2).astype(np.float32)
        return noisy


class LaggingGantry(Gantry):
    """The axes follow a goal two steps late, through a filter."""

    def tick(self):
        self.line = [*getattr(self, "line", [self.place, self.place])[-2:], self.goal]
        way = np.clip(0.35 * (self.line[0] - self.place), -0.01, 0.01)
        self.place, self.speed = self.place + way, way * 50
        self.grip += float(np.clip(self.open - self.grip, -0.02, 0.02))
        self.now += 20_000_000


class LimitingGantry(Gantry):
    """Limit the goals to 0.4 m/s, and say so in applied."""

    def values(self, command):
        values = super().values(command)
        goal = np.clip(values["goal"], self.goal - 0.008, self.goal + 0.008)
        return {**values, "goal": goal.astype(np.float32)}


class SlowCamera(Gantry):
    """The camera delivers a JPEG at a third of the rate; a state in between has the newest one with its own stamp."""

    kept = None

    def images(self):
        import cv2

        if self.kept is None or self.now - self.kept.stamp_ns >= 60_000_000:
            (image,) = super().images().values()
            self.kept = image._replace(data=cv2.imencode(".jpg", image.data)[1].tobytes(), encoding="jpeg")
        return {"top": self.kept}


class RealTimeGantry(Gantry):
    """Keeps its rate by the machine's clock, and says nothing of a simulation; a reset takes some periods."""

    simulated = False

    def tick(self):
        super().tick()
        time.sleep(0.02)
        self.now = time.monotonic_ns()

    def __init__(self):
        super().__init__()
        self.now = time.monotonic_ns()
        self.place, self.grip = np.array([0.0, 0.2]), 0.5


class VelocityCart:
    """A robot that is commanded by speed: nothing measures the command, and there is no home."""

    spec = RobotSpec(
        "cart",
        Spec(
            "cart_sensors",
            (
                Field("way", (), "float32", unit="m", meaning="since the reset"),
                Field("ticks", (), "int64", meaning="steps in its life"),
            ),
        ),
        Spec(
            "cart_commands",
            (
                Field("speed", (), "float32", -1, 1, "m/s", "along the rail"),
                Field("horn", (), "uint8", 0, 1, "1", "1 sounds it"),
            ),
        ),
        20,
    )
    simulated = True

    def __init__(self):
        self.way, self.ticks, self.now, self.why, self.life = 0.0, 0, 0, None, "new"

    def reset(self, options):
        from hal import RobotStopped
        from hal.guarding.stop_latch import gives_reason
        from hal.robot import check_reset_options

        if self.life == "closed":
            raise CrashError("closed")
        check_reset_options(self.spec.commands, options)
        if self.why is not None:
            if not gives_reason(options):
                raise RobotStopped(self.why)
            self.why = None
        self.life, self.way = "open", 0.0
        return self.state(0.0, 0)

    def step(self, command):
        from hal import RobotStopped

        if self.life != "open":
            raise CrashError("not open")
        checked = self.spec.commands.validate(command)
        if self.why is not None:
            raise RobotStopped(self.why)
        self.way += 0.05 * float(checked["speed"])
        self.ticks += 1
        return self.state(float(checked["speed"]), int(checked["horn"]))

    def state(self, speed, horn):
        from hal import RobotState

        self.now += 50_000_000
        sensors = {"way": np.array(self.way, np.float32), "ticks": np.array(self.ticks, np.int64)}
        applied = {"speed": np.array(speed, np.float32), "horn": np.array(horn, np.uint8)}
        return RobotState(sensors, applied, self.now)

    def stop(self, reason):
        self.why = self.why or reason

    def close(self):
        self.life = "closed"


class StoppedByEvent(Gantry):
    """A stop is an event that a thread of the robot notices; close ends the thread."""

    def __init__(self):
        super().__init__()
        self.event, self.done, self.thread = threading.Event(), threading.Event(), None

    def reset(self, options):
        if self.thread is None and not self.closed:
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        return super().reset(options)

    def watch(self):
        while not self.done.wait(0.005):
            if self.event.is_set():
                self.brake()

    def brake(self):
        self.event.clear()

    def stop(self, reason):
        super().stop(reason)
        self.event.set()

    def close(self):
        super().close()
        self.done.set()
        if self.thread is not None:
            self.thread.join(5)
            self.thread = None


class Readable(Gantry):
    """Offers everything that a driver may: read, damp; states are of a subclass and its arrays are read-only."""

    def read(self):
        return self.state()

    def damp(self):
        return True

    def sensors(self):
        values = super().sensors()
        for value in values.values():
            value.setflags(write=False)
        return types.MappingProxyType(values)


ROBOTS: dict[str, type] = {
    of.__name__: of
    for of in (
        Gantry, NoisyGantry, LaggingGantry, LimitingGantry, SlowCamera, RealTimeGantry, VelocityCart, StoppedByEvent,
        Readable,
    )
}  # fmt: skip


# -- batches and source data -----------------------------------------------------------------------------


class EnvIdArray(Landers):
    """env_id is an array of text, and errors are listed under NumPy's numbers."""

    def stack(self, tables, flags=True):
        table = super().stack(tables, flags)
        extra = {**table["extra_info"]}
        return {**table, "env_id": np.array(self.env_ids), "extra_info": extra}

    def step(self, action):
        stacked, rewards = super().step(action)
        if "error" in stacked["extra_info"]:
            stacked["extra_info"]["error"] = {
                np.int64(row): error for row, error in stacked["extra_info"]["error"].items()
            }
        return stacked, rewards


class BareDiary(Diary):
    """Without extra_info, next_observation and done, which are optional."""

    def table(self, places):
        table = super().table(places)
        return {key: table[key] for key in ("env_id", "frame_no", "observation", "action", "reward")} | {
            "extra_info": {}
        }

    def sample_steps(self, batch_size, extra_info=NOTHING):
        table = super().sample_steps(batch_size, extra_info)
        del table["extra_info"]
        return table

    def trajectory(self, e):
        trajectory = super().trajectory(e)
        del trajectory["extra_info"]
        return trajectory


class ListDiary(Diary):
    """A batch is a list of Table 5, one for each step, and statistics are lists."""

    def statistics(self, extra_info=NOTHING):
        return {"returns": [self.total(e) for e in range(len(self.episodes))]}


BATCHES = {of.__name__: of for of in (Landers, EnvIdArray)}
SOURCES = {of.__name__: of for of in (Diary, BareDiary, ListDiary)}
