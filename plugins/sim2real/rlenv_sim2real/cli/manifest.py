"""``rlenv-robot sim2real manifest``: show, write and compare the robot that a policy was trained on."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import print_table

if TYPE_CHECKING:
    from hal import RobotSpec

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Show the manifest that a policy's file carries: the robot on which it was trained, with joints, signs, units, "
        "limits, default pose, control rate, gains and delays. Or compare it with a robot, or write it into a file "
        "that has none."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real manifest reach.npz
  rlenv-robot sim2real manifest reach.npz --robot tcp://10.0.0.7:5555 --keys my-keys
  rlenv-robot sim2real manifest old.npz --write so101 --profile trained_with.toml

Exit code 0: shown, written, or nothing refuses. 1: `rlenv-robot run` would refuse the policy on this robot.
"""
    parser.add_argument("policy", help="a policy's file, .npz or .onnx")
    parser.add_argument("--robot", metavar="WHERE", help="compare with sim, twin, or a server's address")
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--write", metavar="ROBOT", help="write the manifest of this simulated robot into the file")
    parser.add_argument("--profile", metavar="FILE", help="its profile: timing, randomisation and gains in training")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write a manifest if requested, then show or compare it."""
    from hal import RobotError
    from hal.guarding.manifest_check import compare_manifests
    from rlenv_robot.policies.deployment import TrainedPolicy
    from rlenv_robot.policies.policy import load_policy

    if args.write:
        if args.robot:
            raise ValueError("--write and --robot: write first, then compare with another call")
        _write(args.policy, _simulated(args.write, args.profile))
    policy = load_policy(args.policy)
    trained = policy.robot if isinstance(policy, TrainedPolicy) else None
    if trained is None:
        raise RobotError(
            f"{args.policy}: has no manifest; "
            f"`rlenv-robot sim2real manifest {args.policy} --write ROBOT --profile FILE` adds that "
            "of the simulation it was trained in"
        )
    if args.robot is None:
        _show(trained, args.json)
        return 0
    report = compare_manifests(trained, _deployed(trained.name, args))
    if args.json:
        lines = [{"part": each.part, "text": each.text, "refuses": each.refuses} for each in report.differences]
        print(json.dumps({"manifest": trained.manifest_digest, "differences": lines}))
    else:
        for each in report.differences:
            print(f"{'refused' if each.refuses else 'warning'}: {each}")
        if not report.differences:
            print("no difference")
    return 1 if report.refusals else 0


def _write(path: str, robot: RobotSpec) -> None:
    """Write into a policy's file on which robot it was trained, such as into one of an earlier version.

    Raises:
        RobotError: the file is missing, no policy, or names a robot already; or the package onnx is missing.
    """
    from hal import RobotError
    from rlenv_robot.policies.deployment import METADATA, TrainedPolicy, robot_entries
    from rlenv_robot.policies.policy import load_policy

    policy, file = load_policy(path), Path(path)
    if isinstance(policy, TrainedPolicy) and policy.robot is not None:
        raise RobotError(f"{path}: has a manifest already, of a {policy.robot.name!r}; a training writes it")
    if file.suffix == ".npz":
        from rlenv_robot.policies.feedback import load_arrays, save_arrays

        header, arrays = load_arrays(file)
        save_arrays(file, {**header, **robot_entries(robot)}, arrays)
        return
    try:
        import onnx
    except ImportError as error:
        raise RobotError("to write ONNX: pip install 'rlenv-robot[onnx]'") from error
    from rlenv_robot.policies.budget import read_within

    model = onnx.load_from_string(read_within(file))
    for entry in model.metadata_props:
        if entry.key == METADATA:
            entry.value = json.dumps({**json.loads(entry.value), **robot_entries(robot)})
    file.write_bytes(model.SerializeToString())


def _simulated(robot: str, profile_file: str | None) -> RobotSpec:
    from rlenv_robot.config.profile import load_profile
    from rlenv_robot.config.sim_settings import sim_settings
    from rlenv_robot.robot_models import load_robot_model
    from sim.randomize.actuation import configured_spec

    profile = None if profile_file is None else load_profile(profile_file)
    model = load_robot_model(robot).make_sim_model(looks=False)
    settings = sim_settings(None, None, profile, model.spec)
    timing = settings.get("timing")
    delays = None if timing is None else timing.ranges
    return configured_spec(model, delays, settings.get("randomise"), settings.get("gains"))


def _deployed(robot: str, args: argparse.Namespace) -> RobotSpec:
    from rlenv_robot.policies.deployment import robot_as_deployed
    from rlenv_robot.registry import robot as make_robot

    with closing(make_robot(robot, args.robot, keys=args.keys)) as made:
        return robot_as_deployed(made)


def _show(trained: RobotSpec, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"manifest": trained.manifest_digest, "robot": trained.to_dict()}))
        return
    print(f"manifest {trained.manifest_digest}: {trained.name} at {trained.rate_hz:g} Hz")
    for name, pose in trained.home.items():
        print(f"default pose: {name} = {pose}")
    actuation = trained.actuation
    if actuation is None:
        print("gains and delays: not declared")
        return
    names = list(dict.fromkeys(name for gains in actuation.gains.values() for name in gains))
    rows = [[element, *(str(gains.get(name, "")) for name in names)] for element, gains in actuation.gains.items()]
    print_table("gains", ["joint", *names], rows)
    for name, delay in actuation.delays.items():
        print(f"delay of a {name}: {delay} s")
