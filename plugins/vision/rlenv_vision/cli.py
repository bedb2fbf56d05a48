"""``rlenv-robot robot camera``: serve images of a simulated robot."""

from __future__ import annotations

import argparse

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve images of a simulated robot as motion JPEG over HTTP, until Ctrl-C or SIGTERM. Any program that "
        "reads such a stream can be the client, also a profile's camera."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot camera so101
  rlenv-robot robot camera so101 --view wrist --watch tcp://127.0.0.1:5556
"""
    words = "the robot in the image: a name such as so101 (a wrong one lists all), or a MuJoCo model (.xml)"
    parser.add_argument("robot", help=words)
    parser.add_argument("--view", default="overhead", help="the camera in the model (default: overhead)")
    parser.add_argument("--watch", metavar="ADDRESS", help="telemetry of a served robot, whose motion is followed")
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for --watch on another machine")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, only this machine)")
    parser.add_argument("--port", type=int, default=8090, help="0 for any free port (default: 8090)")
    parser.add_argument("--fps", type=float, default=30.0, help="images per second (default: 30)")
    parser.add_argument("--width", type=int, default=640, help="pixels (default: 640)")
    parser.add_argument("--height", type=int, default=480, help="pixels (default: 480)")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEG images, 1 to 100 (default: 90)")
    parser.add_argument("--noise", type=int, default=2, help="sensor noise, grey levels; 0 for none (default: 2)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve images until Ctrl-C or SIGTERM."""
    from hal.cameras.settings import CameraSettings
    from real import Watcher
    from rlenv_robot.robot_models import load_robot_model
    from rlenv_robot.serving import TerminationSignals
    from rlenv_vision.mjpeg_server import MjpegServer
    from rlenv_vision.virtual_camera import Follower, VirtualCamera

    robot_model = load_robot_model(args.robot)
    settings = CameraSettings(
        "simulation", width=args.width, height=args.height, fps=args.fps, quality=args.quality
    )  # raises for impossible values
    follower = Follower(Watcher(args.watch, robot_model.load_spec(), args.keys)) if args.watch else None
    camera = VirtualCamera(robot_model.make_sim_model(), args.view, settings, follower, args.noise)
    try:
        camera.shoot()  # raises here what would otherwise end every connection
        with TerminationSignals() as signals, MjpegServer(camera.shoot, args.fps, args.host, args.port) as server:
            print(f"images of {args.robot} ({args.view}) at {server.url}", flush=True)
            while not signals.wait(0.5):
                pass
    finally:
        camera.close()
        if follower is not None:
            follower.close()
    return 0
