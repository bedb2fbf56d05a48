"""``rlenv-robot camera``: a camera that looks at a simulated robot, for anything that reads motion JPEG over HTTP."""

from __future__ import annotations

import argparse

from hal.cameras.settings import CameraSettings
from rlenv_robot.robot_models import find_robot_model, robot_names
from rlenv_robot.serving import TerminationSignals

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve images of a simulated robot as motion JPEG over HTTP, until Ctrl-C or SIGTERM. Any program that "
        "reads such a stream can be the client, also a profile's camera."
    )
    parser.epilog = """
Examples:

  rlenv-robot camera so101
  rlenv-robot camera so101 --view wrist --watch tcp://127.0.0.1:5556
"""
    parser.add_argument("robot", help=f"what is in the picture: {', '.join(robot_names())}, or a MuJoCo model (.xml)")
    parser.add_argument("--view", default="overhead", help="which of the model's cameras (default: overhead)")
    parser.add_argument("--watch", metavar="ADDRESS", help="telemetry of a served robot: the picture moves as it does")
    parser.add_argument("--keys", metavar="FOLDER", help="for --watch beyond this machine")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, this machine alone)")
    parser.add_argument("--port", type=int, default=8090, help="0 is any free one (default: 8090)")
    parser.add_argument("--fps", type=float, default=30.0, help="pictures a second (default: 30)")
    parser.add_argument("--width", type=int, default=640, help="pixels (default: 640)")
    parser.add_argument("--height", type=int, default=480, help="pixels (default: 480)")
    parser.add_argument("--quality", type=int, default=90, help="of JPEG, 1 to 100 (default: 90)")
    parser.add_argument("--noise", type=int, default=2, help="grey levels, as a sensor has it; 0 for none (default: 2)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Send pictures until Ctrl-C or SIGTERM."""
    from real import Watcher
    from rlenv_robot.rendering.virtual_camera import Follower, VirtualCamera
    from sim.rendering.mjpeg import MjpegServer

    chosen = find_robot_model(args.robot)
    settings = CameraSettings(
        "simulation", width=args.width, height=args.height, fps=args.fps, quality=args.quality
    )  # refuses what can't be
    follower = None
    if args.watch:
        follower = Follower(Watcher(args.watch, chosen.load_spec(), args.keys))
    camera = VirtualCamera(chosen.make_sim_model(), args.view, settings, follower, args.noise)
    try:
        camera.shoot()  # what can't be drawn is said here, in one line
        ending = TerminationSignals()
        with MjpegServer(camera.shoot, args.fps, args.host, args.port) as server:
            print(f"pictures of {args.robot} ({args.view}) at {server.url}", flush=True)
            while not ending.wait(0.5):
                pass
    finally:
        camera.close()
        if follower is not None:
            follower.close()
    return 0
