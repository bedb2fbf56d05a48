"""Time from the call of `RemoteRobot.stop` to the robot's own `stop`.

Beside a client of 50 Hz and two cameras, as in `loop.py`.

    python benchmarks/stop.py [--trials 200] [--priority 40]
"""

from __future__ import annotations

import time

from served_arm import CONTROL_HZ, arguments, server, spread, wait_for, walking

from real import RemoteRobot
from real.control.lifecycle import State


def stop(trials: int, priority: int) -> None:
    took = []
    with server(priority, cameras=2) as order:
        address = order("serve")
        with walking(address):
            stopper = RemoteRobot(address)
            for _ in range(trials):
                wait_for(order, State.RUNNING)
                began = time.monotonic_ns()
                stopper.stop("a benchmark")
                took.append((order("about")["stopped_ns"] - began) / 1e6)
        order("close")
    spread("stop: call to the actuators", took, 1e3 / CONTROL_HZ)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trials", type=int, default=200, help="how many stops")
    options = parser.parse_args()
    stop(options.trials, options.priority)


if __name__ == "__main__":
    main()
