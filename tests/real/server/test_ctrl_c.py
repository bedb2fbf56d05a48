"""Ctrl-C ends a server at whatever line it comes: none of them leaves a lock behind that the end waits for."""

import sys
import threading

import pytest

from real import Server
from real.control.lifecycle import State

LINES = 60
"""Traced lines, calls and returns; far more than one turn of the wait has."""


UNRAISABLE = ("__del__", "_remove", "gc_callback")
"""Python drops what is raised in a finalizer or in a callback of weak sets or of the garbage collector (hypothesis has
one), so an interrupt there proves nothing."""


def _is_unraisable(frame):
    while frame is not None:
        if frame.f_code.co_name in UNRAISABLE:
            return True
        frame = frame.f_back
    return False


class Interrupt:
    """Raise Ctrl-C at the n-th line, call or return of a thread."""

    def __init__(self, at):
        self.left = at
        self.came = False

    def __call__(self, frame, event, argument):
        if _is_unraisable(frame):
            return None
        self.left -= 1
        if self.left > 0:
            return self
        sys.settrace(None)
        self.came = True
        raise KeyboardInterrupt


def served_until(server, interrupt):
    """Return whether a server that serves for ever in another thread ended there, and passed Ctrl-C on."""
    ends = []

    def run():
        try:
            with server:
                sys.settrace(interrupt)
                server.serve_forever()
        except KeyboardInterrupt:
            ends.append("Ctrl-C")
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    return ends == ["Ctrl-C"] and interrupt.came


@pytest.mark.requirement("R6.6")
def test_ctrl_c_at_any_line_of_the_wait_stops_and_closes(make_robot, monkeypatch):
    monkeypatch.setattr("real.server.server.LOOK_S", 1e-4)
    for at in range(1, LINES):
        robot = make_robot()
        server = Server(robot).start()
        assert served_until(server, Interrupt(at)), f"it hung: the interrupt at line {at}"
        assert robot.closed == 1
        assert server.lifecycle.state is State.STOPPED


def test_a_second_ctrl_c_does_not_leave_the_robot_moving(robot, monkeypatch):
    """Leaving the `with` completes a close that was interrupted."""
    with Server(robot) as server:
        stop = server._loop.stop

        def impatient(reason):
            monkeypatch.undo()
            stop(reason)
            raise KeyboardInterrupt

        monkeypatch.setattr(server._loop, "stop", impatient)
        with pytest.raises(KeyboardInterrupt):
            server.close()
        assert robot.closed == 0
    assert set(robot.stops) == {"the server was closed"}
    assert robot.closed == 1
