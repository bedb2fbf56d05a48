"""Run what a bench must be able to kill in a process of its own: the server of the arm, and a client that moves it.

    python -m rlenv_kit.bench.child serve PROFILE FOLDER
    python -m rlenv_kit.bench.child swing ADDRESS SECONDS

The server is that of ``rlenv-robot serve``, with some settings of the profile replaced (`served_profile`). Once it
listens it prints ``ready {JSON}``. For each line on standard input it prints ``about {JSON}``. When standard input
ends, its bench is gone: it stops the arm, and ends with the arm held.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal.wrapper import RobotWrapper
    from real.server.server import Server
    from rlenv_robot.config.profile import Profile

__all__ = ["is_virtual", "main", "served_profile"]


def served_profile(profile: Profile, folder: Path) -> Profile:
    """Return a profile as the bench serves it.

    On loopback without keys, with a short lease, telemetry at 100 Hz, stops that outlive the server, a stopped arm that
    is held at the end, and resets that no other signal confirms: the bench itself asks its owner before each.

    Args:
        profile: the owner's.
        folder: where stops are kept if the profile names no place.
    """
    section = profile.serve
    serve = replace(
        section, address="tcp://127.0.0.1:*", keys="", lease_s=2.0, telemetry="tcp://127.0.0.1:*", telemetry_hz=100.0,
        stop="", pictures="", stopped_at_end="hold",
        latch=section.latch or section.keys or section.record or str(folder),
    )  # fmt: skip
    return replace(profile, reset=replace(profile.reset, signal="automatic", verdicts=False), serve=serve)


def is_virtual(robot: RobotWrapper) -> bool:
    """Return whether a robot is known to be no metal: a simulation, or an arm behind a virtual servo bus.

    The second is known once the port is open.
    """
    from hal.drivers.simulated_port import SimulatedPort

    bus = getattr(robot.unwrapped, "bus", None)
    return robot.simulated or isinstance(getattr(bus, "port", None), SimulatedPort)


def _serve(path: str, folder: str) -> int:
    from hal.wrapper import RobotWrapper
    from rlenv_robot.config.profile import load_profile
    from rlenv_robot.robot_models import load_robot_model
    from rlenv_robot.serving import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    profile = served_profile(load_profile(path), Path(folder))
    section, driver = profile.robot, None
    if section.where == "driver":
        model = load_robot_model(section.kind)
        model = replace(model, driver=section.driver) if section.driver else model
        driver = RobotWrapper(model.make_driver(section.options, Path(path).absolute().parent))

    @contextmanager
    def answering(server: Server) -> Iterator[None]:
        about = server.about()
        _say("ready", {"address": server.address, "telemetry": about["telemetry"]})
        threading.Thread(target=_answer, args=(server, driver), name="bench", daemon=True).start()
        yield

    return serve(profile, driver, beside=answering)


def _answer(server: Server, driver: RobotWrapper | None) -> None:
    while sys.stdin.readline():
        _say("about", {"virtual": driver is None or is_virtual(driver), **({} if driver is None else driver.about())})
    server.stop("the bench has ended without a word")
    os.kill(os.getpid(), signal.SIGTERM)


def _say(word: str, data: dict[str, Any]) -> None:
    sys.stdout.write(f"{word} {json.dumps(data)}\n")
    sys.stdout.flush()


def _swing(address: str, seconds: str) -> int:
    from real import RemoteRobot
    from rlenv_kit.bench.motion import Swing

    with closing(RemoteRobot(address)) as remote:
        state = remote.reset({"start": "present"})
        for command in Swing(remote.spec, state).commands(float(seconds)):
            remote.step(command)
            sys.stdout.write("step\n")
            sys.stdout.flush()
    return 0


def main(arguments: list[str]) -> int:
    """Run the server or the client; return its exit code."""
    verbs = {"serve": _serve, "swing": _swing}
    code = verbs[arguments[0]](*arguments[1:])
    if code:
        os._exit(code)  # a driver that hangs has a thread that would keep this process alive
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
