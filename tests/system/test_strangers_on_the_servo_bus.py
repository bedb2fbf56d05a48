"""Strangers' drivers, unchanged, take the virtual servo bus for a real one, and do to its registers what ours does.

The programs are LeRobot 0.4.4 and 0.6.1, feetech-servo-sdk 1.0.0, dynamixel-sdk 3.8.4 and 4.1.0, and rustypot 1.13.1.
None is a dependency of this project, and tests skip where one is missing. ``--strangers PYTHON`` names another
interpreter that has them: LeRobot 0.6 needs Python 3.12. Of LeRobot the buses and the SO-101 follower are used; its
unrelated imports of torch, accelerate, datasets and its processors are replaced by empty modules.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import BusSettings, ServoBus
from hal.drivers.calibration import load_calibration
from hal.drivers.serial_port import SerialPort
from hal.robots.so101 import HIGH, JOINTS, LOW
from hal.robots.so101_units import JointUnits
from rlenv_arms import dynamixel
from rlenv_arms.dynamixel_servo import DynamixelServo
from rlenv_arms.dynamixel_x import TABLE
from rlenv_arms.servo_terminal import ServoTerminal
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine

pytestmark = pytest.mark.slow

STAND_INS = """
import importlib.machinery, importlib.util, json, sys, types

class Empty(types.ModuleType):
    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

missing = [name for name in ("torch", "accelerate", "datasets") if importlib.util.find_spec(name) is None]
for name in (*missing, *(["datasets.utils", "datasets.utils.logging"] if "datasets" in missing else [])):
    sys.modules[name] = Empty(name)
path = sys.argv[1]
"""

LEROBOT = """
from lerobot.motors import Motor, MotorNormMode
from lerobot.motors.{vendor} import {bus}
motors = {{f"m{{i}}": Motor(i, "{model}", MotorNormMode.DEGREES) for i in (1, 2, 3, 4, 5, 6)}}
bus = {bus}(path, motors)
bus.connect()
told = {{"pinged": bus.broadcast_ping(), "model": bus.ping("m3")}}
bus.disable_torque()
bus.configure_motors()
bus.write("{gain}", "m2", 20)
bus.sync_write("Goal_Position", {{name: 2000 for name in motors}}, normalize=False)
bus.enable_torque()
told["goals"] = bus.sync_read("Goal_Position", normalize=False, num_retry=20)
told["positions"] = bus.sync_read("Present_Position", normalize=False, num_retry=20)
bus.disconnect()
print(json.dumps(told))
"""

FEETECH_SDK = """
import scservo_sdk as sdk
port, handler = sdk.PortHandler(path), sdk.PacketHandler(0)
assert port.openPort() and port.setBaudRate(1000000)
model, result, error = handler.ping(port, 3)
assert (result, error) == (sdk.COMM_SUCCESS, 0), (result, error)
result, error = handler.write2ByteTxRx(port, 3, 48, 400)
assert (result, error) == (sdk.COMM_SUCCESS, 0), (result, error)
value, result, error = handler.read2ByteTxRx(port, 3, 48)
group = sdk.GroupSyncRead(port, handler, 56, 2)
[group.addParam(i) for i in range(1, 7)]
assert group.txRxPacket() == sdk.COMM_SUCCESS
print(json.dumps({"model": model, "limit": value, "positions": [group.getData(i, 56, 2) for i in range(1, 7)]}))
port.closePort()
"""

DYNAMIXEL_SDK = """
import dynamixel_sdk as sdk
port, handler = sdk.PortHandler(path), sdk.PacketHandler(2.0)
assert port.openPort() and port.setBaudRate(1000000)
model, result, error = handler.ping(port, 3)
assert (result, error) == (sdk.COMM_SUCCESS, 0), (result, error)
result, error = handler.write4ByteTxRx(port, 3, 116, 0xFDFFFF)
assert (result, error) == (sdk.COMM_SUCCESS, 0), (result, error)
value, result, error = handler.read4ByteTxRx(port, 3, 116)
handler.write1ByteTxRx(port, 3, 64, 1)
refused = handler.write1ByteTxRx(port, 3, 11, 1)[1]
group = sdk.GroupSyncRead(port, handler, 132, 4)
[group.addParam(i) for i in range(1, 7)]
assert group.txRxPacket() == sdk.COMM_SUCCESS
print(json.dumps({"model": model, "goal": value, "refused": refused,
                  "positions": [group.getData(i, 132, 4) for i in range(1, 7)]}))
port.closePort()
"""

RUSTYPOT = """
from rustypot import Sts3215PyController
bus = Sts3215PyController(serial_port=path, baudrate=1000000, timeout=0.5)
bus.sync_write_goal_position([1, 2], [0.1, -0.1])
print(json.dumps({"ping": bus.ping(3), "missing": bus.ping(9),
                  "positions": [float(x) for x in bus.sync_read_present_position([1, 2, 3, 4, 5, 6])]}))
"""


FOLLOWER = """
import pathlib, time
for name in ("lerobot.processor",):
    sys.modules[name] = Empty(name)
import builtins
from lerobot.robots.so_follower import SOFollower, SOFollowerRobotConfig
folder = pathlib.Path(sys.argv[2])
def config():
    return SOFollowerRobotConfig(port=path, id="arm", calibration_dir=folder)
builtins.input = lambda text: print("middle", flush=True) or time.sleep(1.0) or "c"
robot = SOFollower(config())
robot.bus.connect()
print("calibrating", flush=True)
robot.calibrate()
robot.configure()
robot.bus.enable_torque()
told = {"calibrated": robot.is_calibrated, "seen": robot.get_observation()}
goal = {name: value + (5.0 if name == "shoulder_pan.pos" else 0.0) for name, value in told["seen"].items()}
told["sent"] = robot.send_action(goal)
time.sleep(1.5)
told["moved"] = robot.get_observation()
robot.disconnect()
again = SOFollower(config())
again.connect()
told["connected"] = again.is_connected
again.disconnect()
print(json.dumps(told))
"""


@pytest.fixture(scope="session")
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter that has the strangers' packages."""
    return str(request.config.getoption("--strangers"))


def needed(python: str, *packages: str) -> None:
    """Skip the test where the interpreter lacks a package."""
    program = (
        "import importlib.util, sys; print(*(name for name in sys.argv[1:] if not importlib.util.find_spec(name)))"
    )
    done = subprocess.run([python, "-c", program, *packages], capture_output=True, text=True, timeout=60, check=True)
    if done.stdout.strip():
        pytest.skip(f"{python} lacks {done.stdout.strip()}")


def stranger(python: str, program: str, path: str) -> dict:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", STAND_INS + program, path],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def bus_arm() -> tuple[ServoArm, ServoLine]:
    servos = so101_servos()
    arm = ServoArm(servos)
    return arm, ServoLine(servos, before_request=arm.advance)


def test_lerobots_feetech_bus_does_to_the_registers_what_ours_does(python: str) -> None:
    needed(python, "lerobot", "serial", "scservo_sdk")
    arm, line = bus_arm()
    with ServoTerminal(line, on_time=arm.advance) as terminal:
        program = LEROBOT.format(vendor="feetech", bus="FeetechMotorsBus", model="sts3215", gain="P_Coefficient")
        told = stranger(python, program, terminal.path)
    assert told["pinged"] == {str(servo): 777 for servo in range(1, 7)}
    assert told["goals"] == {f"m{servo}": 2000 for servo in range(1, 7)}
    ours, line = bus_arm()
    with ServoTerminal(line, on_time=ours.advance) as terminal:
        bus = ServoBus(SerialPort(terminal.path), feetech, BusSettings(latency_s=2.0))
        for servo in range(1, 7):
            for address, data in ((40, b"\0"), (55, b"\0"), (7, b"\0"), (85, b"\xfe"), (41, b"\xfe")):
                bus.write(servo, address, data)
        bus.write(2, 21, b"\x14")
        bus.sync_write(42, dict.fromkeys(range(1, 7), (2000).to_bytes(2, "little")))
        for servo in range(1, 7):
            bus.write(servo, 40, b"\x01")
            bus.write(servo, 55, b"\x01")
        bus.close()
    for theirs, servo in zip(arm.servos, ours.servos, strict=True):
        theirs.write(40, b"\x00" if servo.memory[40] == 0 else b"\x01")  # LeRobot takes the torque away as it leaves
        theirs.write(55, servo.memory[55:56])
        assert bytes(theirs.memory[:56]) == bytes(servo.memory[:56])


class Person:
    """Move each joint of a virtual arm to both of its ends and back to the middle, whatever the table is like."""

    def __init__(self, arm: ServoArm) -> None:
        self.arm, self.sweeping = arm, False
        self.begun_ns: int | None = None
        self.middle, self.half = (np.array(HIGH) + LOW) / 2, (np.array(HIGH) - LOW) / 2

    def advance(self, now_ns: int) -> None:
        if self.sweeping:
            self.begun_ns = self.begun_ns or now_ns
            share = np.sin((now_ns - self.begun_ns) / 1e9 * 2 * np.pi / 3.0)
            self.place(self.middle + share * self.half, now_ns)
        elif {servo.drive for servo in self.arm.servos} == {"off"}:
            self.place(self.middle, now_ns)
        else:
            self.arm.advance(now_ns)

    def place(self, joints: np.ndarray, now_ns: int) -> None:
        self.arm.data.qpos[self.arm._qpos], self.arm.data.qvel[:], self.arm.time_ns = joints, 0.0, now_ns
        self.arm._measure()


def test_lerobots_so101_follower_connects_calibrates_reads_and_writes(python: str, tmp_path: Path) -> None:
    needed(python, "lerobot", "serial", "scservo_sdk", "draccus", "huggingface_hub")
    zeros = (2048, 700, 3900, 2100, 1500, 3000)
    servos = so101_servos(zeros, calibrated=False)
    arm = ServoArm(servos, zeros)
    arm.model.opt.gravity[:] = 0
    arm.model.geom_contype[:] = 0
    person = Person(arm)
    with ServoTerminal(ServoLine(servos, before_request=person.advance), on_time=person.advance) as terminal:
        process = subprocess.Popen(
            [python, "-u", "-W", "ignore", "-c", STAND_INS + FOLLOWER, terminal.path, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []

        def finish() -> None:
            person.sweeping = False
            print(file=process.stdin, flush=True)

        try:
            for line in process.stdout:
                lines.append(line)
                if "Recording positions" in line:
                    person.sweeping = True
                    Timer(7.0, finish).start()  # two whole swings
            assert process.wait(60) == 0, lines
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
    told = json.loads(lines[-1])
    assert told["calibrated"]
    assert told["connected"]
    calibration = load_calibration(tmp_path / "arm.json")  # LeRobot's own file
    for name, joint, servo in zip(JOINTS, calibration.joints.values(), servos, strict=True):
        assert servo.get("homing_offset") == joint.homing_offset, name
        assert (servo.get("min_position"), servo.get("max_position")) == (joint.range_min, joint.range_max), name
        assert servo.get("p") == 16
    assert calibration.misfits(tolerance_deg=3.0) == [], "it swept the model's travel"
    seen, moved = (np.array([told[key][f"{name}.pos"] for name in JOINTS]) for key in ("seen", "moved"))
    np.testing.assert_allclose(JointUnits("degrees").to_radians(seen)[:4], person.middle[:4], atol=0.06)
    assert 2.0 < moved[0] - seen[0] < 8.0, "the pan went where it was told"
    np.testing.assert_allclose(moved[1:5], seen[1:5], atol=3.0)


def test_the_vendors_feetech_sdk_reads_and_writes(python: str) -> None:
    needed(python, "scservo_sdk", "serial")
    arm, line = bus_arm()
    with ServoTerminal(line, on_time=arm.advance) as terminal:
        told = stranger(python, FEETECH_SDK, terminal.path)
    assert (told["model"], told["limit"]) == (777, 400)
    assert told["positions"] == pytest.approx([servo.present for servo in arm.servos], abs=30)
    assert arm.servos[2].get("torque_limit") == 400


def test_rustypot_reads_and_writes(python: str) -> None:
    needed(python, "rustypot")
    arm, line = bus_arm()
    with ServoTerminal(line, on_time=arm.advance) as terminal:
        told = stranger(python, RUSTYPOT, terminal.path)
    assert (told["ping"], told["missing"]) == (True, False)
    assert arm.servos[0].get("goal_position") == pytest.approx(2048 + 65, abs=1)
    steps = [2048 + position / 6.283185307 * 4096 for position in told["positions"]]
    assert steps == pytest.approx([servo.present for servo in arm.servos], abs=30)


def dynamixels(model: int = 1200) -> tuple[Sequence[DynamixelServo], ServoLine]:
    servos = [DynamixelServo(servo, model) for servo in range(1, 7)]
    return servos, ServoLine(servos, dynamixel)


def test_lerobots_dynamixel_bus_does_to_the_registers_what_ours_does(python: str) -> None:
    needed(python, "lerobot", "serial", "dynamixel_sdk")
    servos, line = dynamixels()
    with ServoTerminal(line) as terminal:
        told = stranger(python, LEROBOT.format(vendor="dynamixel", bus="DynamixelMotorsBus", model="xl330-m288",
                                       gain="Position_P_Gain"), terminal.path)  # fmt: skip
    assert told["pinged"] == {str(servo): 1200 for servo in range(1, 7)}
    assert told["positions"] == {f"m{servo}": 2000 for servo in range(1, 7)}
    ours, line = dynamixels()
    with ServoTerminal(line) as terminal:
        bus = ServoBus(SerialPort(terminal.path), dynamixel, BusSettings(latency_s=2.0))
        for servo in range(1, 7):
            bus.write(servo, 64, b"\0")
            bus.write(servo, 9, b"\0")
        bus.write(2, 84, b"\x14\0")
        bus.sync_write(116, dict.fromkeys(range(1, 7), (2000).to_bytes(4, "little")))
        for servo in range(1, 7):
            bus.write(servo, 64, b"\x01")
        bus.close()
    for theirs, servo in zip(servos, ours, strict=True):
        theirs.memory[64] = servo.memory[64]  # LeRobot takes the torque away as it leaves
        assert bytes(theirs.memory) == bytes(servo.memory)


def test_the_vendors_dynamixel_sdk_reads_and_writes_also_what_must_be_stuffed(python: str) -> None:
    needed(python, "dynamixel_sdk", "serial")
    servos, line = dynamixels(1060)
    with ServoTerminal(line) as terminal:
        told = stranger(python, DYNAMIXEL_SDK, terminal.path)
    assert (told["model"], told["goal"], told["refused"]) == (1060, 0xFDFFFF, 7)
    assert told["positions"] == [int.from_bytes(servo.memory[132:136], "little") for servo in servos]


CONTROL_TABLES = """
import pathlib, dynamixel_easy_sdk
told = {}
for model in ("xl330_m288", "xl330_m077", "xl430_w250"):
    file = pathlib.Path(dynamixel_easy_sdk.__file__).parent / "control_table" / (model + ".model")
    rows = [line.split("\\t") for line in file.read_text().split("[control table]")[1].splitlines()]
    told[model] = {row[2]: [int(row[0]), int(row[1])] for row in rows if len(row) == 3 and row[0].isdigit()}
print(json.dumps(told))
"""

MAKERS_NAMES = {
    "model": "Model Number", "firmware": "Firmware Version", "id": "ID", "baud_rate": "Baud Rate",
    "return_delay": "Return Delay Time", "drive_mode": "Drive Mode", "mode": "Operating Mode",
    "homing_offset": "Homing Offset", "max_temperature": "Temperature Limit", "max_voltage": "Max Voltage Limit",
    "min_voltage": "Min Voltage Limit", "max_torque": "PWM Limit", "max_position": "Max Position Limit",
    "min_position": "Min Position Limit", "shutdown": "Shutdown", "torque_enable": "Torque Enable",
    "status_return": "Status Return Level", "status": "Hardware Error Status", "d": "Position D Gain",
    "i": "Position I Gain", "p": "Position P Gain", "watchdog": "Bus Watchdog", "torque_limit": "Goal PWM",
    "acceleration": "Profile Acceleration", "goal_speed": "Profile Velocity", "goal_position": "Goal Position",
    "moving": "Moving", "present_load": "Present PWM", "present_speed": "Present Velocity",
    "present_position": "Present Position", "present_voltage": "Present Input Voltage",
    "present_temperature": "Present Temperature",
}  # fmt: skip


def test_our_registers_lie_where_the_makers_control_tables_say(python: str) -> None:
    needed(python, "dynamixel_easy_sdk")
    told = stranger(python, CONTROL_TABLES, "")
    for rows in told.values():
        assert {name: [TABLE[name].address, TABLE[name].size] for name in MAKERS_NAMES} == {
            name: rows[theirs] for name, theirs in MAKERS_NAMES.items()
        }
