"""A tank with a pump and a valve in lockstep, and a mobile manipulator with three commands on a clock of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from hal import EpisodeError, Field, RobotSpec, RobotState, RobotStopped, Spec, StreamSpec, check_clears
from hal.robot import check_reset_options, starts_here
from plugins.kit.faults.fault_set_d.common import DeviceClock, robot_fault, robot_good

PRESSURE = Field("pressure", (1,), "float32", 0, 20000, "Pa", "pressure at the tank's bottom, above that of the air")
TANK = RobotSpec(
    "tank",
    Spec("tank_sensors", (
        Field("level", (1,), "float32", 0, 0.5, "m", "height of the water"),
        Field("inflow", (), "float64", 0, 1e-3, "m3/s", "water that the pump brings"),
        PRESSURE,
        Field("valve_place", (), "int8", 0, 2, "1", "0 closed, 1 half open, 2 open"),
        Field("mode", (), "text", unit="1", meaning="run, or held after a stop", characters=8),
    )),
    Spec("tank_commands", (
        Field("pump", (), "float64", 0, 1, "1", "share of the pump's top speed"),
        Field("valve", (), "int8", 0, 2, "1", "0 closed, 1 half open, 2 open"),
    )),
    10.0,
    home={"pump": 0.0, "valve": 0},
    measured_by={"valve": "valve_place"},
    max_age_s={"inflow": 0.5},
)  # fmt: skip


class Tank:
    """A tank of 0.02 m2, filled by a pump and emptied by a valve; its pressure is sampled 50 times a second."""

    spec = TANK
    simulated = True
    streams = (StreamSpec("pressure", Spec("pressure", (PRESSURE,)), 50.0),)
    inertia, meter = 0.15, 1

    def __init__(self):
        self.h, self.flow, self.pump, self.valve, self.ms = 0.2, 0.0, 0.0, 0, 0
        self.mode, self.held, self.shut, self.count = "new", None, False, 0
        self.sink, self.number, self.metered = None, -1, (0.0, 0)

    def stream_to(self, sinks):
        self.sink = sinks.get("pressure")

    def flow_on(self, periods=1):
        for _ in range(5 * periods):
            self.physics(0.02)
            self.ms += 20
            self.sample()
        self.count += 1
        if self.count % self.meter == 0:
            self.metered = (self.flow, self.ms)

    def physics(self, dt):
        self.flow += dt / self.inertia * (4e-4 * self.pump - self.flow)
        out = 1.1e-4 * self.valve * math.sqrt(self.h)
        self.h = min(0.5, max(0.0, self.h + dt * (self.flow - out) / 0.02))

    def sample(self):
        if self.sink is not None:
            self.number = self.sink.write({"pressure": self.pascals()}, self.ms * 1_000_000)

    def pascals(self):
        return np.array([9810.0 * self.h], np.float32)

    def readings(self):
        return {
            "level": np.array([round(self.h, 4)], np.float32),
            "inflow": np.array(self.metered[0]),
            "pressure": self.pascals(),
            "valve_place": np.array(self.valve, np.int8),
            "mode": np.array("run" if self.held is None else "held", "<U8"),
        }

    def ages(self):
        age = (self.ms - self.metered[1]) * 1_000_000
        return {"inflow": age} if age else {}

    def done(self):
        return {"pump": np.array(self.pump), "valve": np.array(self.valve, np.int8)}

    def tell(self):
        used = {} if self.sink is None else {"pressure": self.number}
        return RobotState(self.readings(), self.done(), self.ms * 1_000_000, self.ages(), used=used)

    def reset(self, options):
        check_reset_options(TANK.commands, options)
        if self.shut:
            raise EpisodeError("reset after close")
        check_clears(self.held, options)
        self.held = None
        start = {} if starts_here(options) else options.get("start", {})
        if not starts_here(options) or self.mode == "new":
            self.fill(options)
            self.flow, self.count = 0.0, 0
            self.set({**TANK.home, **start})
        self.mode = "on"
        self.ms += 100
        self.metered = (self.flow, self.ms)
        self.sample()
        return self.tell()

    def fill(self, options):
        seed = options.get("seed")
        self.h = 0.2 if seed is None else float(np.random.default_rng(int(seed)).uniform(0.1, 0.3))

    def set(self, values):
        self.pump, self.valve = float(values["pump"]), int(values["valve"])

    def step(self, command):
        legal = TANK.commands.validate(command, "command")
        self.gate()
        self.set(legal)
        self.flow_on()
        return self.tell()

    def gate(self):
        if self.shut or self.mode == "new":
            raise EpisodeError("step before reset, or after close")
        if self.held is not None:
            raise RobotStopped(self.held)

    def stop(self, reason):
        if self.held is None:
            self.held = str(reason)
        self.pump, self.flow = 0.0, 0.0

    def close(self):
        self.shut = True


@robot_fault("6.2.2.2-1", "step carries out the command", "mixed")
class TankValveSleeps(Tank):
    """The valve does not open below a pump speed of a tenth."""

    def set(self, values):
        super().set({**values, "valve": values["valve"] if values["pump"] >= 0.1 else 0})


@robot_fault("B.6.2-5", "step reads the sensors", "follow")
class TankModelLevel(Tank):
    """The level is computed from the commands, and not measured at the bottom of the tank."""

    model = 0.2

    def fill(self, options):
        super().fill(options)
        self.model = self.h

    def flow_on(self, periods=1):
        super().flow_on(periods)
        self.model = min(0.5, self.model + 0.1 * 4e-4 * self.pump / 0.02)

    def readings(self):
        return {**super().readings(), "level": np.array([self.model], np.float32)}


@robot_fault("robot", "old samples have their age", "follow")
class TankOldFlow(Tank):
    """The flow meter gives a value each fourth period, and no age says so."""

    meter = 4

    def ages(self):
        return {}


@robot_fault("robot", "samples have stamps of the robot's clock", "stream")
class TankSampleMs(Tank):
    """The stamps of a stream's samples are in milliseconds."""

    def sample(self):
        if self.sink is not None:
            self.number = self.sink.write({"pressure": self.pascals()}, self.ms)


@robot_fault("robot", "used names the sample that a reading was made from", "stream")
class TankUsedMissing(Tank):
    """Used is left out, though the pressure comes from its stream."""

    def tell(self):
        return super().tell()._replace(used={})


@robot_good
class TankSlowMeter(Tank):
    """A flow meter with a value in each third period, whose age the reading gives."""

    meter = 3


# -- the mobile manipulator -------------------------------------------------------------------------------------

MOVES = "forward speed in m/s and turning speed in rad/s"
MOMO = RobotSpec(
    "reach-cart",
    Spec("reach_cart_sensors", (
        Field("cart_speed", (2,), "float32", -2, 2, "1", MOVES, ("ahead", "turn")),
        Field("cart_pose", (3,), "float64", -1e4, 1e4, "1", "place in m and heading in rad", ("x", "y", "yaw")),
        Field("joint_position", (2,), "float32", -2, 2, "rad", "angles of lift and reach", ("lift", "reach")),
        Field("joint_velocity", (2,), "float32", -20, 20, "rad/s", "speeds of lift and reach", ("lift", "reach")),
        Field("hook_shut", (), "int32", 0, 1, "1", "whether the hook is shut"),
        Field("wall_distance", (), "float32", 0, 10, "m", "distance of the wall ahead, 10 if farther"),
    )),
    Spec("reach_cart_commands", (
        Field("drive", (2,), "float32", (-0.5, -1.0), (0.5, 1.0), "1", MOVES, ("ahead", "turn")),
        Field("joint_target", (2,), "float32", (-0.5, 0.0), (1.2, 1.5), "rad", "goals of them", ("lift", "reach")),
        Field("hook", (), "int32", 0, 1, "1", "0 opens the hook, 1 shuts it"),
    )),
    100.0,
    home={"drive": (0.0, 0.0), "joint_target": (0.2, 0.3), "hook": 0},
    measured_by={"drive": "cart_speed", "joint_target": "joint_position", "hook": "hook_shut"},
    max_age_s={"wall_distance": 0.3},
    max_rate={"joint_position": 20.0},
)  # fmt: skip


class ReachCart:
    """A cart with an arm of two joints and a hook; its range finder has ten values a second, whose age it gives."""

    spec = MOMO

    def __init__(self):
        self.clock = DeviceClock(MOMO.rate_hz)
        self.s = SimpleNamespace(
            v=np.zeros(2), pose=np.zeros(3), q=np.array([0.0, 0.1]), w=np.zeros(2), hook=0, hook_ms=0
        )
        self.out = {"drive": np.zeros(2), "joint_target": np.array([0.0, 0.1]), "hook": 0}
        self.time, self.range, self.limp = None, (5.0, 0), False
        self.stage, self.blocked = "made", None

    def drift(self):
        now = self.clock.now()
        self.time = now if self.time is None else max(self.time, now - 2_000_000_000)
        while self.time + 2_000_000 <= now:
            self.time += 2_000_000
            self.integrate(0.002)
            if self.time - self.range[1] >= 100_000_000:
                self.range = (float(np.clip(3.0 - self.s.pose[0], 0.0, 10.0)), self.time)

    def integrate(self, dt):
        s, out = self.s, self.out
        s.v = s.v + dt / 0.08 * (out["drive"] - s.v)
        s.pose = s.pose + dt * np.array([s.v[0] * math.cos(s.pose[2]), s.v[0] * math.sin(s.pose[2]), s.v[1]])
        goal = np.array([-0.45, 0.05]) if self.limp else out["joint_target"] - [0.015 * math.cos(s.q[0]), 0.0]
        stiff = (2.0, 8.0) if self.limp else (400.0, 40.0)
        s.w = s.w + dt * (stiff[0] * (goal - s.q) - stiff[1] * s.w)
        s.q = s.q + dt * s.w
        s.hook_ms = 0 if s.hook == out["hook"] else s.hook_ms + dt
        if s.hook_ms > 0.05:
            s.hook, s.hook_ms = int(out["hook"]), 0

    def see(self):
        s = self.s
        return {
            "cart_speed": np.round(s.v, 4).astype(np.float32), "cart_pose": s.pose.copy(),
            "joint_position": s.q.astype(np.float32), "joint_velocity": s.w.astype(np.float32),
            "hook_shut": np.array(s.hook, np.int32), "wall_distance": np.array(self.range[0], np.float32),
        }  # fmt: skip

    def sent(self):
        return {"drive": np.float32(self.out["drive"]), "joint_target": np.float32(self.out["joint_target"]),
                "hook": np.array(self.out["hook"], np.int32)}  # fmt: skip

    def account(self):
        self.drift()
        now = self.clock.now()
        return RobotState(self.see(), self.sent(), now, {"wall_distance": max(0, now - self.range[1])})

    def reset(self, options):
        check_reset_options(MOMO.commands, options)
        if self.stage == "closed":
            raise EpisodeError("reset of a closed cart")
        check_clears(self.blocked, options)
        self.blocked = None
        self.drift()
        if self.range[1] == 0:
            self.range = (float(np.clip(3.0 - self.s.pose[0], 0.0, 10.0)), self.clock.now())
        self.stage, self.limp = "open", False
        self.hold()
        start = {} if starts_here(options) else options.get("start", {})
        self.put({name: np.asarray(start.get(name, value)) for name, value in self.out.items()})
        with self.clock.period():
            self.clock.wait()
            return self.account()

    def hold(self):
        """Let the wheels stand and the joints stay; the hook keeps what it has."""
        q = np.clip(self.s.q + np.array([0.015 * math.cos(self.s.q[0]), 0.0]), *MOMO.commands["joint_target"].bounds)
        self.s.v, self.s.w = np.zeros(2), np.zeros(2)
        self.out = {"drive": np.zeros(2), "joint_target": q.astype(float), "hook": self.s.hook}

    def put(self, values):
        self.drift()
        self.out = {"drive": values["drive"].astype(float), "joint_target": values["joint_target"].astype(float),
                    "hook": int(values["hook"])}  # fmt: skip

    def step(self, command):
        values = MOMO.commands.validate(command, "command")
        if self.stage != "open":
            raise EpisodeError(f"the cart is {self.stage}")
        if self.blocked is not None:
            raise RobotStopped(self.blocked)
        with self.clock.period():
            self.put(values)
            self.clock.wait()
            return self.account()

    def read(self):
        if self.stage == "closed":
            return None
        self.drift()
        self.range = self.range if self.range[1] else (3.0, self.clock.now())
        return self.account()

    def damp(self):
        self.drift()
        self.hold()
        self.limp = True
        return True

    def stop(self, reason):
        self.blocked = self.blocked or str(reason)
        self.drift()
        self.hold()

    def close(self):
        if self.stage != "closed":
            self.drift()
            self.hold()
        self.stage = "closed"


@robot_fault("robot", "stop holds at once", "stop")
class CartStopArmOnly(ReachCart):
    """Stop halts the arm and leaves the wheels to their last command."""

    def stop(self, reason):
        self.drift()
        drive, v = self.out["drive"], self.s.v
        super().stop(reason)
        self.out["drive"], self.s.v = drive, v


@robot_fault("robot", "a refused reset changes nothing", "refused")
class CartStartHalf(ReachCart):
    """An illegal start is refused after the joints were sent to the legal part of it."""

    def reset(self, options):
        start = options.get("start")
        if isinstance(start, dict) and self.blocked is None and self.stage == "open":
            for name, value in start.items():
                try:
                    if name in self.out:
                        self.put(
                            {
                                **self.out,
                                "hook": np.asarray(self.out["hook"]),
                                name: MOMO.commands[name].validate(value),
                            }
                        )
                except ValueError:
                    pass
        return super().reset(options)


@robot_fault("6.2.1-7", "a refusal names what was illegal", "illegal")
class CartSwallows(ReachCart):
    """An illegal command is answered by the last reading, without an error."""

    def step(self, command):
        try:
            MOMO.commands.validate(command, "command")
        except ValueError:
            return self.account()
        return super().step(command)


@robot_fault("robot", "damp gives way", "damp")
class CartDampHolds(ReachCart):
    """Damp answers True, and the joints hold as before."""

    def integrate(self, dt):
        limp, self.limp = self.limp, False
        super().integrate(dt)
        self.limp = limp


@robot_fault("robot", "read moves nothing and a stop stays", "read")
class CartReadHomes(ReachCart):
    """Read begins with the home goal of the joints, as a reset does."""

    def read(self):
        if self.stage == "open":
            self.drift()
            self.out["joint_target"] = np.array(MOMO.home["joint_target"])
        return super().read()


@robot_fault("robot", "the constructor touches nothing, and the description stays", "describe")
class CartRateChanges(ReachCart):
    """The description's rate changes with the first reset."""

    @property
    def spec(self):
        return MOMO if self.__dict__.get("stage", "made") == "made" else replace(MOMO, rate_hz=50.0)


@robot_good
class CartStiff(ReachCart):
    """Can't give way: damp answers False and changes nothing."""

    def damp(self):
        return False
