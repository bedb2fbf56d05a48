"""Certify stopping: measure how soon a served robot stops and holds on this machine.

Times are measured at the client, so each includes the network. The robot goes home by its usual reset and is then
commanded to stay where it is; nothing else moves. The certificate covers the software: the time until the robot's
driver has confirmed the stop, not the time until a mass is at rest.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hal import RobotError, RobotState
from hal.field import JsonDict
from real import RemoteRobot
from rlenv_kit.certificate import STOPPING

__all__ = ["certify", "spread_ms", "this_machine"]

_REASON = "a trial of the certificate of stopping"
_STEPS_S = 0.3
_PATIENCE_S = 10.0

# -- Measure ---------------------------------------------------------------------------------------------------


def certify(
    address: str,
    *,
    trials: int = 100,
    keys: str | Path | None = None,
    profile: str | Path | None = None,
    conformance: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Measure how soon a served robot stops, and how soon it holds without commands; return a certificate.

    Args:
        address: the address of the server. No other client may move the robot meanwhile.
        trials: the number of trials of each kind, at least 1.
        keys: folder of this client's keys, with the role ``move`` or ``operate``.
        profile: the server's profile, whose digest goes into the certificate.
        conformance: a report on this robot (``rlenv-robot check --report FILE.json``), for the certificate.
        progress: called with the number of completed trials and the total.

    Returns:
        JSON data without a signature. ``stops`` maps a state to the `spread_ms` of the times from the call to the
        confirmation; ``silences`` maps it to that of the times from the last command's call until the state is
        ``holding``, at most the watchdog's time and two control periods. The robot is left stopped.

    Raises:
        ValueError: fewer than 1 trial, a profile or a report that can't be read, or a report on another robot.
        RobotError: the robot refused a reset, since it was stopped before or another client stopped it meanwhile; or it
            did not confirm a stop.
    """
    if trials < 1:
        raise ValueError(f"trials is {trials}, it must be at least 1")
    digest = None if profile is None else sha256(Path(profile).read_bytes()).hexdigest()
    reports = None if conformance is None else _read_reports(Path(conformance))
    began = datetime.now(UTC)
    with closing(RemoteRobot(address, keys=keys)) as mover, closing(RemoteRobot(address, keys=keys)) as button:
        button.stand_by()
        if reports is not None:
            _check_robot(reports, mover.spec.digest, Path(conformance or ""))  # before anything moves
        bench = _Bench(mover, button)
        kinds: dict[str, Callable[[], float]] = {
            "ready": bench.stop_when_ready, "running": bench.stop_when_running, "holding": bench.stop_when_holding,
            "stopped": bench.stop_when_stopped, "silence": bench.fall_silent,
        }  # fmt: skip
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for done in range(trials * len(kinds)):
            kind = tuple(kinds)[done % len(kinds)]
            took[kind].append(kinds[kind]())
            if progress is not None:
                progress(done + 1, trials * len(kinds))
        button.stop("the certificate of stopping is finished")
        status, spec = button.status(), mover.spec
    silences = took.pop("silence")
    return {
        "format": STOPPING,
        "robot": {"name": spec.name, "digest": spec.digest, "rate_hz": spec.rate_hz},
        "began": began.isoformat(timespec="seconds"),
        "trials_of_each": trials,
        "stops": {kind: spread_ms(times) for kind, times in took.items()},
        "silences": {"running": spread_ms(silences)},
        "server": {name: status.get(name) for name in ("real_time", "cadence", "stop", "repeated") if name in status},
        "profile_sha256": digest,
        "conformance": reports,
        "client": this_machine(),
    }


def spread_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return count, median, 99.9th percentile (nearest rank, rounded up) and maximum of durations, in milliseconds."""
    times = sorted(seconds)
    rank = min(math.ceil(0.999 * len(times)), len(times)) - 1
    return {
        "number": len(times),
        "median": round(statistics.median(times) * 1e3, 3),
        "99.9%": round(times[rank] * 1e3, 3),
        "longest": round(times[-1] * 1e3, 3),
    }


def _read_reports(path: Path) -> list[JsonDict]:
    """Return the reports in a file of ``rlenv-robot check --report FILE.json``."""
    try:
        reports = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        reports = None
    if not isinstance(reports, list) or not all(
        isinstance(one, dict) and {"subject", "passed", "checks"} <= one.keys() for one in reports
    ):
        raise ValueError(
            f"{path} is not a conformance report; write one with `rlenv-robot check NAME --robot ADDRESS --report "
            f"{path.with_suffix('.json').name}`"
        )
    return reports


def _check_robot(reports: Sequence[JsonDict], digest: str, path: Path) -> None:
    """Refuse reports of which none is on the robot with this digest."""
    found = [str(one["robot_digest"]) for one in reports if one.get("robot_digest")]
    if digest not in found:
        of = f"a robot with the digest {found[0][:16]}" if found else "no robot"
        raise ValueError(
            f"{path} reports on {of}, the served robot has {digest[:16]}; check the served robot: `rlenv-robot check "
            "NAME --robot ADDRESS --report FILE.json`"
        )


class _Bench:
    """Bring a robot into a state, and stop it there."""

    def __init__(self, mover: RemoteRobot, button: RemoteRobot) -> None:
        self._mover, self._button = mover, button

    def stop_when_ready(self) -> float:
        self._reset()
        return self._stop()

    def stop_when_running(self) -> float:
        state = self._reset()
        with self._stepping(state):
            time.sleep(_STEPS_S)
            return self._stop()

    def stop_when_holding(self) -> float:
        self._mover.step(dict(self._reset().applied))
        self._until("holding")
        return self._stop()

    def stop_when_stopped(self) -> float:
        self._button.stop(_REASON)
        return self._stop()

    def fall_silent(self) -> float:
        """Step for a while, then not; return the time from the last command's call until the state is ``holding``."""
        command = dict(self._reset().applied)
        end = time.monotonic() + _STEPS_S
        while (called := time.monotonic()) < end:
            self._mover.step(command)
            last = called
        self._until("holding")
        return time.monotonic() - last

    def _reset(self) -> RobotState:
        number = self._button.last_stop  # of the certificate's own stops: one of anybody else ends it
        return self._mover.reset({} if number is None else {"clear_stop": _REASON, "stop_number": number})

    def _stop(self) -> float:
        began = time.monotonic()
        self._button.stop(_REASON)
        return time.monotonic() - began

    def _until(self, state: str) -> None:
        end = time.monotonic() + _PATIENCE_S
        while (status := self._button.status()).get("state") != state:
            if time.monotonic() > end:
                raise RobotError(
                    f"the robot was not {state} within {_PATIENCE_S:g} s, it was {status.get('state')}; a server in "
                    "lockstep has no watchdog and can't be certified"
                )

    @contextmanager
    def _stepping(self, state: RobotState) -> Iterator[None]:
        """Step in another thread until a stop ends it."""
        ended: list[RobotError] = []

        def step() -> None:
            try:
                while True:
                    self._mover.step(dict(state.applied))
            except RobotError as error:
                ended.append(error)

        thread = threading.Thread(target=step, name="certificate of stopping", daemon=True)
        thread.start()
        yield
        thread.join(_PATIENCE_S)
        if thread.is_alive() or _REASON not in str(ended[0]):
            raise RobotError(f"the steps did not end by the stop: {ended[0] if ended else 'they go on'}")


def this_machine() -> dict[str, Any]:
    """Return system, processors, load and versions of this machine as plain data."""
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("rlenv-robot", "pyzmq", "numpy", "cryptography")},
    }
