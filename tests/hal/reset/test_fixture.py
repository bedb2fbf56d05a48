"""A GPIO line: a real one of the kernel's simulated chip where there is one, and a fake gpiod beside it."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hal import DeadlineExceeded, ResetFailed, ResetRequest
from hal.reset.confirmation import VerdictRequest
from hal.reset.fixture import Gpio

REQUEST = ResetRequest("arm", 0, deadline_s=5.0)
CONFIG = Path("/sys/kernel/config/gpio-sim")

# -- a line of the kernel's simulated chip -------------------------------------------------------------------

_number = itertools.count()


def why_not() -> str:
    """Return why this machine can't simulate a line; empty if it can."""
    if not CONFIG.is_dir():
        return f"no {CONFIG}: as root, `modprobe gpio-sim` and mount configfs"
    return "" if os.access(CONFIG, os.W_OK) else f"{CONFIG} is not ours to write: run as root"


class SimulatedLine:
    """A simulated chip of one line (the kernel's gpio-sim: configfs makes the chip, sysfs sets the line)."""

    def __init__(self) -> None:
        self._folder = CONFIG / f"rlenv-{os.getpid()}-{next(_number)}"
        bank = self._folder / "bank0"
        bank.mkdir(parents=True)
        (bank / "num_lines").write_text("1")
        (self._folder / "live").write_text("1")
        self._bank = bank
        name = (bank / "chip_name").read_text().strip()
        device = (self._folder / "dev_name").read_text().strip()
        self.chip = f"/dev/{name}"
        self._pull = Path(f"/sys/devices/platform/{device}/{name}/sim_gpio0/pull")

    def pull(self, up: bool) -> None:
        self._pull.write_text("pull-up" if up else "pull-down")

    def close(self) -> None:
        (self._folder / "live").write_text("0")
        self._bank.rmdir()
        self._folder.rmdir()


@pytest.fixture
def line() -> Iterator[SimulatedLine]:
    if why_not():
        pytest.skip(why_not())
    pytest.importorskip("gpiod", reason="needs the extra gpio")
    made = SimulatedLine()
    yield made
    made.close()


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("active_low", [False, True])
def test_a_press_on_a_real_line_confirms(line: SimulatedLine, active_low: bool) -> None:
    line.pull(active_low)
    pressing = threading.Timer(0.3, line.pull, (not active_low,))
    pressing.start()
    before = time.monotonic()
    assert Gpio(line.chip, 0, active_low=active_low).ask(REQUEST).by == "gpio"
    assert time.monotonic() - before >= 0.3
    pressing.join()


def test_a_line_that_is_already_active_does_not_count(line: SimulatedLine) -> None:
    line.pull(True)
    with pytest.raises(DeadlineExceeded, match="must be released first"):
        Gpio(line.chip, 0).ask(ResetRequest("arm", 0, deadline_s=0.2))


def test_a_line_in_use_is_an_error(line: SimulatedLine) -> None:
    import gpiod

    with (
        gpiod.request_lines(line.chip, consumer="another", config={0: None}),
        pytest.raises(ResetFailed, match=r"line 0 of .* can't be used: .*busy"),
    ):
        Gpio(line.chip, 0).ask(REQUEST)


# -- a fake gpiod: what is asked of the bindings, where there is no line ---------------------------------------


class FakeGpiod(ModuleType):
    """Stand in for the bindings, and record the requests."""

    def __init__(self, presses: bool, problem: Exception | None = None) -> None:
        super().__init__("gpiod")
        self.presses, self.problem, self.waited, self.released = presses, problem, timedelta(), False
        self.line = ModuleType("gpiod.line")
        self.line.Direction = SimpleNamespace(INPUT="input")  # type: ignore[attr-defined]
        self.line.Edge = SimpleNamespace(RISING="rising")  # type: ignore[attr-defined]
        self.LineSettings = dict

    def request_lines(self, chip: str, consumer: str, config: dict[int, Any]) -> Any:
        if self.problem is not None:
            raise self.problem
        self.asked = chip, config
        return self._lines()

    @contextlib.contextmanager
    def _lines(self) -> Iterator[Any]:
        def wait_edge_events(timeout: timedelta) -> bool:
            self.waited = timeout
            return self.presses

        yield SimpleNamespace(wait_edge_events=wait_edge_events)
        self.released = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(presses: bool, problem: Exception | None = None) -> FakeGpiod:
        made = FakeGpiod(presses, problem)
        monkeypatch.setitem(sys.modules, "gpiod", made)
        monkeypatch.setitem(sys.modules, "gpiod.line", made.line)
        return made

    return install


def test_an_edge_on_a_fake_line_confirms(fake: Any) -> None:
    gpiod = fake(True)
    signal = Gpio("/dev/gpiochip0", 17, active_low=True, debounce_s=0.05)
    assert signal.ask(REQUEST) == ("gpio", "/dev/gpiochip0 line 17", None)
    chip, config = gpiod.asked
    assert chip == "/dev/gpiochip0"
    assert config == {
        17: {"direction": "input", "edge_detection": "rising", "active_low": True,
             "debounce_period": timedelta(seconds=0.05)}
    }  # fmt: skip
    assert gpiod.waited == timedelta(seconds=5)
    assert gpiod.released
    signal.close()


def test_a_fake_line_without_an_edge_ends_at_the_deadline(fake: Any) -> None:
    fake(False)
    with pytest.raises(DeadlineExceeded, match=r"line 17 of /dev/gpiochip0 .* 5 s"):
        Gpio("/dev/gpiochip0", 17).ask(REQUEST)


def test_a_fake_line_that_can_not_be_requested_is_an_error(fake: Any) -> None:
    fake(True, PermissionError(13, "Permission denied"))
    with pytest.raises(ResetFailed, match="Permission denied; `gpioinfo` lists"):
        Gpio("/dev/gpiochip0", 17).ask(REQUEST)


def test_without_gpiod_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpiod", None)
    with pytest.raises(ResetFailed, match=r"pip install 'rlenv-robot\[gpio\]'"):
        Gpio("/dev/gpiochip0", 17).ask(REQUEST)


def test_the_real_bindings_report_a_missing_chip() -> None:
    pytest.importorskip("gpiod", reason="needs the extra gpio")
    with pytest.raises(ResetFailed, match="line 3 of /dev/no-such-chip"):
        Gpio("/dev/no-such-chip", 3).ask(REQUEST)


def test_a_line_gives_no_verdict() -> None:
    assert Gpio("/dev/gpiochip0", 17).judge(VerdictRequest("arm", 0, 1.0)).verdict is None
