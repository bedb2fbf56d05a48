"""Go through the steps of a bench, write the report after each, and leave the arm held whatever ends it."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from hal.field import JsonDict
from rlenv_kit.bench.owner import Owner, VirtualOwner
from rlenv_kit.bench.report import FORMAT, StepResult, write_report
from rlenv_kit.bench.rig import Program, Rig
from rlenv_kit.bench.steps import STEPS, Bench
from rlenv_kit.stopping import this_machine
from rlenv_robot.config.profile import load_profile
from rlenv_robot.robot_models import load_robot_model

__all__ = ["VIRTUAL_PROFILE", "make_bench", "run_bench", "virtual_arm"]

VIRTUAL_PROFILE = """# The virtual arm of a bench.
[robot]
kind = "{name}"
driver = "servo-bus"
options = {{port = "{folder}/arm", calibration = "{folder}/arm.json"}}

[serve]
lower_s = 5.0
"""

_START_S = 90.0


@contextmanager
def virtual_arm(name: str, say: Callable[[str], None]) -> Iterator[tuple[Path, VirtualOwner]]:
    """Serve a virtual arm on a pseudo-terminal; yield the profile that serves it, and an owner that acts on it.

    Args:
        name: a robot with a table of joints, such as ``so101``.
        say: prints a line.

    Raises:
        ValueError: there is no such arm.
        BenchError: the virtual arm does not start, as without the plug-in ``rlenv_arms``.
    """
    load_robot_model(name).load_arm()
    with tempfile.TemporaryDirectory(prefix="rlenv-bench-") as folder:
        profile = Path(folder) / "virtual.toml"
        profile.write_text(VIRTUAL_PROFILE.format(name=name, folder=folder), encoding="utf-8")
        command = [sys.executable, "-m", "rlenv_robot", "robot", "twin", name, "--bus", "--link", f"{folder}/arm",
                   "--calibration", f"{folder}/arm.json"]  # fmt: skip
        twin = Program(command, Path(folder) / "twin.log")
        try:
            twin.line_with("virtual", _START_S)
            yield profile, VirtualOwner(twin, say)
        finally:
            twin.end(signal.SIGTERM)


def make_bench(path: Path, owner: Owner, folder: Path, **lengths: float) -> Bench:
    """Return the bench of an arm; nothing is started.

    Args:
        path: its profile.
        owner: whoever stands at it.
        folder: for logs of the server, and for stops if the profile names no place.
        lengths: of the steps, as `Bench` has them.

    Raises:
        ProfileError: the profile can't be used.
        ValueError: it names no driver and no simulation that a server can run, or its robot is no arm.
    """
    profile = load_profile(path)
    if profile.robot.where not in ("driver", "twin", "sim"):
        raise ValueError(
            f"{path}: robot.where is {profile.robot.where!r}; a bench serves the arm itself, by its driver"
        )
    model = load_robot_model(profile.robot.kind)
    if model.arm is None:
        raise ValueError(f"{path}: robot {model.name!r} is not described by a table of an arm's joints (docs/arms.md)")
    return Bench(Rig(path, folder), owner, profile, model.load_arm(), **lengths)


def run_bench(
    bench: Bench, names: Sequence[str], out: Path, key: Path, owner_name: str, say: Callable[[str], None]
) -> JsonDict:
    """Do steps, and return the signed report, which is also written after each step.

    Ctrl-C or SIGTERM, at any moment, stops the arm, ends the server with the arm held, and writes the report of what
    was done until then. A step that fails does not end the bench.

    Args:
        bench: the arm, and what the steps need.
        names: steps, of `STEPS`.
        out: the report's JSON file; a page for people (``.md``) is written beside it.
        key: file of the private key that signs it.
        owner_name: name of the owner, for the report.
        say: prints a line.

    Raises:
        BenchError: the server does not start, or reports no joints.
        ValueError: a step is unknown, or the key can't be used.
    """
    if unknown := [name for name in names if name not in STEPS]:
        raise ValueError(f"unknown steps {', '.join(unknown)}; steps are {', '.join(STEPS)}")
    results: dict[str, StepResult] = {}
    report: JsonDict = {
        "format": FORMAT, "began": _now(), "ended": _now(), "complete": False, "owner": owner_name,
        "computer": this_machine(), "arm": {}, "steps": [],
    }  # fmt: skip

    def write(reason: str) -> JsonDict:
        left = {name: StepResult(name, STEPS[name].title, False, reason) for name in STEPS if name not in results}
        for name in left.keys() - set(names):
            left[name] = StepResult(name, STEPS[name].title, False, "not asked for (--steps)")
        report["steps"] = [(results.get(name) or left[name]).to_json() for name in STEPS]
        report["ended"] = _now()
        return write_report(out, report, key)

    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        bench.rig.start()
        bench.rig.pose()  # from here on the port is open, and nothing has moved
        report["arm"] = _described(bench)
        write("not reached yet")
        for name in names:
            step, stopped = STEPS[name], bench.rig.stopped
            if stopped is not None:
                say(f"the arm is stopped: {stopped}. The next step clears this stop, if you begin it")
            refused = bench.owner.begin(name, step.title, step.you, step.clear)
            results[name] = step.run(name, bench) if refused is None else StepResult(name, step.title, False, refused)
            write("not reached yet")
            say(_line(results[name]))
        report["complete"] = True
        signed = write("")
        _finish(bench.rig, say)
        return signed
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a second one must not break the stop and the report
        say(f"interrupted: {bench.rig.hold()}")
        if report["arm"]:
            write("the bench was interrupted")
            say(f"{out}: what was done until then")
        raise
    except BaseException:
        say(bench.rig.hold())
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _described(bench: Bench) -> dict[str, Any]:
    """Return what the report says about the arm."""
    about, spec = bench.rig.about(), bench.rig.mover.spec
    servos: dict[str, JsonDict] = about.get("servos", {})
    return {
        "name": spec.name, "digest": spec.digest, "rate_hz": spec.rate_hz, "virtual": bool(about["virtual"]),
        "profile_sha256": sha256(Path(bench.profile.file).read_bytes()).hexdigest(),
        "firmware": ", ".join(sorted({str(servo["firmware"]) for servo in servos.values()})),
        "servos": servos, "torque_limits": about.get("torque_limits"), "gains": about.get("gains"),
    }  # fmt: skip


def _line(result: StepResult) -> str:
    plain = result.to_json()
    failed = [f"{figure['name']} {figure['value']} {figure['unit']}" for figure in plain["figures"]
              if figure["passed"] is False]  # fmt: skip
    return f"{result.name}: {plain['verdict']}{'; '.join(['', *failed, *([result.reason] if result.reason else [])])}"


def _finish(rig: Rig, say: Callable[[str], None]) -> None:
    """End the server: an arm that a step has stopped stays held, another one is let down."""
    stopped = rig.stopped
    if rig.serves:
        rig.end_server(signal.SIGTERM)
    if stopped is not None:
        say("the arm is stopped and holds with torque: support it, then cut its supply")
