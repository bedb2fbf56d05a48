"""Name the power cuts of this machine for the verb ``doctor``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hal.errors import ConnectionLost
from rlenv_power_cut.control_socket import ask, held_ports
from rlenv_power_cut.link import PowerCutError, PowerCutLink, Status
from rlenv_robot.cli.output import Finding

__all__ = ["examine_power_cuts"]

_BOARDS = "*MicroPython*"
"""Names in ``/dev/serial/by-id`` of boards with MicroPython."""

_LISTEN_S = 0.5


def examine_power_cuts(
    record: Path | None = None, keys: Path | None = None, folder: str | Path = "/dev/serial/by-id"
) -> list[Finding]:
    """Examine each power cut that a server holds, and each board with MicroPython: absent, foreign, off, too slow.

    A board that no server holds is only listened to.

    Args:
        record: unused.
        keys: unused.
        folder: folder of the serial ports' persistent names.
    """
    held = {str(Path(port).resolve()): port for port in held_ports()}
    findings = [_held(port) for port in held.values()]
    for port in sorted(Path(folder).glob(_BOARDS)):
        if str(port.resolve()) not in held:
            findings.append(_idle(port))
    advice = "servos push on if their server dies; a board cuts their supply (docs/power-cut.md)"
    return findings or [Finding("power cut", None, "none", advice)]


def _held(port: str) -> Finding:
    try:
        answer = ask(port, {"verb": "status"})
    except PowerCutError as error:
        return Finding("power cut", False, f"{port}: {error}", "restart the server")
    if answer is None:
        return Finding("power cut", None, f"{port}: its server has just ended", "")
    state, advice = f"{port}: {answer['state']}, held by a server", []
    if answer["silent"]:
        advice.append(f"it gets no heartbeat, since {answer['silent']}")
    if not answer["on"]:
        advice.append(f"look at the robot, then: rlenv-robot robot power-cut on {port} --cut {answer['cut']}")
    cut_ms, watchdog_s = answer["cut_ms"], answer["watchdog_s"]
    if isinstance(cut_ms, int) and isinstance(watchdog_s, float) and cut_ms > watchdog_s * 1e3:
        advice.append(f"its cut time is longer than the server's watchdog of {watchdog_s * 1e3:g} ms: lower cut_ms in "
                      "[extensions.power-cut]")  # fmt: skip
    return Finding("power cut", None if advice else True, state, "; ".join(advice))


def _idle(port: Path) -> Finding:
    try:
        with closing(PowerCutLink(port)) as link:
            status: Status = link.first_status(_LISTEN_S)
    except ConnectionLost as error:
        return Finding("power cut", None, f"{port}: not examined", str(error))
    except PowerCutError as error:
        return Finding("power cut", None, f"{port}: a board without this firmware", str(error))
    advice = "no server holds it: add [extensions.power-cut] to the robot's profile (docs/power-cut.md)"
    return Finding("power cut", None, f"{port}: {status.describe()}", advice)
