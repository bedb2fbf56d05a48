"""``rlenv-robot sim2real contact``: fit the expectation of an arm's currents, by which its driver notices contacts."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table, say

if TYPE_CHECKING:
    from hal.drivers.arm_table import ArmTable
    from recorder.read.reader import LogReader
    from rlenv_sim2real.contact_fit import ContactFit, ServoRun

__all__ = ["add", "read_servo_run", "recorded_registers", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Fit the currents that an arm's servos need in free motion, and the smallest excess that counts as a contact, "
        "to runs in which the arm touched and carried nothing. The driver `feetech` takes the file as `contact`."
    )
    parser.epilog = """
Record the runs with the driver itself, so that they hold the servos' currents: serve.record in the profile of the
server, or --robot module:factory. Two minutes of `sim2real excite` and two of the arm's own work without an
object are enough.

Examples:

  rlenv-robot sim2real contact runs/controller --output arm.contact.json
  rlenv-robot sim2real contact runs/a runs/b --payload 0.05 --hours 100 --output arm.contact.json

Exit code 0: fitted. 1: the last fifth of the runs would have been a contact for a model of the rest. 2: the runs
can't be read or can't be used.
"""
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="a run, or a folder of runs")
    parser.add_argument("--robot", help="the robot model, such as so101 (default: from the runs)")
    parser.add_argument("--payload", type=float, default=0.1, metavar="KG",
                        help="the heaviest load that is no contact, kg (default 0.1)")  # fmt: skip
    parser.add_argument("--hours", type=float, default=10.0, metavar="H",
                        help="hours of motion for each false alarm of a joint (default: 10)")  # fmt: skip
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the contact model there (.json)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit, print, and write the model."""
    from hal.drivers.contact_model import save_contact_model
    from recorder.read.reader import LogReader
    from rlenv_robot.data.folder import runs_at
    from rlenv_robot.robot_models import find_robot_model, load_robot_model
    from rlenv_sim2real.contact_fit import fit_contacts
    from sim.mjcf.chain import chain_of, tool_of

    if args.output is not None and args.output.suffix != ".json":
        raise ValueError(f"--output is {str(args.output)!r}, a contact model's name ends in .json")
    readers = [LogReader(path) for given in args.runs for path in (sorted(runs_at(given)) or [given])]
    name = (readers[0].metadata.get("robot_spec") or {}).get("name")
    robot = load_robot_model(args.robot) if args.robot else find_robot_model(str(name))
    arm, model = robot.load_arm(), robot.make_sim_model(looks=False).model
    runs = [read_servo_run(reader, arm) for reader in readers]
    registers = [recorded_registers(reader, arm) for reader in readers]
    if any(one != registers[0] for one in registers):
        raise ValueError("the runs were recorded with different gains; fit those of one setting")
    if not args.json:
        say(f"fitting {robot.name} to {sum(len(one.times) for one in runs)} readings of {len(runs)} runs")
    fit = fit_contacts(
        arm, chain_of(model, arm.names), tool_of(model, arm.names), runs, registers[0], args.payload, args.hours
    )
    if args.output is not None:
        save_contact_model(fit.model, args.output)
    if args.json:
        print(json.dumps(_data(fit) | ({"file": str(args.output)} if args.output else {})))
    else:
        _print(fit)
        if args.output is not None:
            print(args.output)
    return 1 if fit.judged_alarms else 0


def read_servo_run(reader: LogReader, arm: ArmTable) -> ServoRun:
    """Return what the servos measured in a run.

    Raises:
        ValueError: the run has no such stream, or one of another arm.
    """
    from hal.drivers.motion_watch import STREAM, servo_stream
    from rlenv_sim2real.contact_fit import ServoRun

    stream = reader.streams.get(STREAM)
    if stream is None:
        raise ValueError(
            f"{reader.path} has no currents of servos (stream {STREAM!r}); record with the driver itself: serve.record "
            "in the server's profile"
        )
    difference = servo_stream(arm, stream.rate_hz).spec.difference(stream.spec)
    if difference:
        raise ValueError(f"{reader.path} holds the servos of another arm than {arm.name}: {difference[0]}")
    rows = reader.samples(STREAM)
    return ServoRun(
        reader.path.name, rows["stamp_ns"] / 1e9, rows["servo_position"].astype(float),
        rows["servo_current"].astype(float), 1 / stream.rate_hz,
    )  # fmt: skip


def recorded_registers(reader: LogReader, arm: ArmTable) -> dict[str, dict[str, int]]:
    """Return the contents of ``p``, ``i`` and ``d`` by joint that a run declares.

    Raises:
        ValueError: the run declares none.
    """
    from hal import RobotSpec

    plain = reader.metadata.get("robot_spec")
    actuation = None if plain is None else RobotSpec.from_dict(plain).actuation
    gains = {} if actuation is None else actuation.gains
    registers: dict[str, dict[str, int]] = {}
    for name in arm.names:
        table = next((own for key, own in gains.items() if key.rpartition(".")[2] == name), {})
        if {"p", "i", "d"} <= table.keys():
            registers[name] = {key: round(table[key].low) for key in ("p", "i", "d")}
    if len(registers) < len(arm.names):
        raise ValueError(
            f"{reader.path} does not say the servos' gains; record with the driver `feetech` or `servo-bus`"
        )
    return registers


def _data(fit: ContactFit) -> dict[str, object]:
    names = [joint.name for joint in fit.model.joints]
    return {
        "joints": names, "explained": fit.explained.tolist(), "spread_nm": fit.spread.tolist(),
        "threshold_nm": [None if math.isinf(limit) else limit for limit in fit.thresholds.tolist()],
        "readings": fit.readings, "alarms": fit.alarms, "judged_alarms": fit.judged_alarms,
    }  # fmt: skip


def _print(fit: ContactFit) -> None:
    rows = [
        [joint.name, f"{explained:.0%}", f"{spread:.3f}", "not judged" if math.isinf(limit) else f"{limit:.2f}",
         f"{joint.coulomb * joint.torque_constant:.3f}", f"{joint.load:.2f}"]
        for joint, explained, spread, limit in zip(
            fit.model.joints, fit.explained, fit.spread, fit.thresholds, strict=True
        )
    ]  # fmt: skip
    head = ["joint", "explained", "spread [N m]", "contact from [N m]", "friction [N m]", "share of load"]
    print_table(f"currents in free motion, {fit.readings} readings", head, rows)
    print(f"readings beyond them: {fit.alarms}; with a model of the rest, in the last fifth: {fit.judged_alarms}")
