"""Run a command of ``rlenv-robot`` that ends, as after Ctrl-C, when the process that started it has gone.

``python -m rlenv_operate.console.child FD WORDS...``: FD is the end to read of a pipe whose other end the starter
holds. The system closes that end even where the starter is killed (SIGKILL), on Linux and on macOS.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

__all__ = ["ENDINGS"]

ENDINGS = ((signal.SIGINT, 15.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0))
"""Signals that end a command, one after the other, each with the time in which the process must have ended, seconds.

The first is Ctrl-C, after which a robot's server takes the robot home.
"""


def _end_with_the_starter(pipe: int) -> None:
    """Wait until the other end of the pipe is closed, then end this process."""
    os.read(pipe, 1)
    print("whoever started this command has gone, so it ends as after Ctrl-C", file=sys.stderr, flush=True)
    for number, patience_s in ENDINGS:
        if number == signal.SIGKILL:
            os.kill(os.getpid(), number)
        signal.pthread_kill(threading.main_thread().ident or 0, number)  # interrupts what the main thread waits for
        time.sleep(patience_s)


def _run() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process began with it ignored
    threading.Thread(target=_end_with_the_starter, args=(int(sys.argv[1]),), daemon=True).start()
    from rlenv_robot.cli.main import main

    return main(sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(_run())
