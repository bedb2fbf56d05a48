"""A robot of a stranger in the page: no package knows it, it has a driver alone, and cannot be read at rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import Field, Guard, Homing, Spec
from hal.homing import HomingSettings
from hal.reset.confirmation import Automatic
from real import Server
from rlenv_operate.console.mover import MoverSettings
from tests.browser import IN_BROWSER, chromium, holds, shows, watched_pages
from tests.fakes import INTEGRATOR, Integrator

pytest.importorskip("playwright.sync_api", reason="no browser tests: pip install playwright")
server = pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
pytestmark = IN_BROWSER

RANGE = ((0.0, 0.0), (0.4, 100.0))
NAMES = ("slide", "jaw")
CRANE = replace(
    INTEGRATOR,
    name="crane",
    sensors=Spec("crane_sensors", (Field("position", (2,), "float32", *RANGE, "1", "where it is", NAMES),
                                   INTEGRATOR.sensors["steps"])),
    commands=Spec("crane_commands", (Field("target", (2,), "float32", *RANGE, "1", "goal", NAMES),)),
    home={"target": (0.1, 50.0)},
)  # fmt: skip


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """The page of a console that records into ``runs``, with a robot that nobody has registered."""
    robot = Homing(Guard(Integrator(CRANE)), Automatic(), HomingSettings(velocity=100.0))
    with (
        Server(
            robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=50, watchdog_s=10.0, max_command_age_s=10.0
        ) as served,
        server.ConsoleServer(
            server.ConsoleSettings(
                address=served.address, port=0, runs=tmp_path / "runs", mover=MoverSettings(record=tmp_path / "runs")
            )
        ) as console,
        chromium() as browser,
        watched_pages(browser, ("blob:", "data:")) as opened,
    ):
        yield opened(console.url, "#joint-table tbody tr", viewport={"width": 1280, "height": 900})


def test_a_driver_alone_is_moved_recorded_judged_and_stopped_in_the_page(page: Any, tmp_path: Path) -> None:
    shows(page, "#state", "disarmed")
    holds(page, "state.readable === false")
    page.evaluate("render()")
    assert page.is_hidden("#stale"), "that its driver can't be read at rest is no alarm"
    assert page.is_visible("#joints-note")
    shows(page, "#pad-help", "Q/A\N{NO-BREAK SPACE}slide, W/S\N{NO-BREAK SPACE}jaw")
    page.fill("#person", "Ada")
    page.click("#name-form button")
    shows(page, "#me", "Ada")
    page.click("[data-act=arm]")
    page.wait_for_selector("#state[data-s=ready]")
    assert page.is_hidden("#joints-note")
    page.focus("#pad")
    page.keyboard.down("Space")
    page.keyboard.down("KeyW")
    holds(page, "(state.applied.target || [])[1] > 55")  # in percent: it goes as fast as its range is wide
    page.keyboard.up("KeyW")
    page.keyboard.down("KeyA")
    holds(page, "state.applied.target[0] < 0.08")
    page.keyboard.up("KeyA")
    page.keyboard.up("Space")
    page.click("[data-act=success]")
    holds(page, "state.mover.phase === 'idle'")
    assert page.is_hidden("#stale")
    page.keyboard.press("Escape")
    page.wait_for_selector("#state[data-s=stopped]")
    shows(page, "#notice", "stopped; the robot confirmed")
    page.click("#replay summary")
    holds(page, "$('replay-0').options.length === 2")
    page.select_option("#replay-0", "0")
    shows(page, "#replay-note", "there is no model of the robot 'crane' here")
    (info,) = (dict(info) for info in rr.open_source(str(tmp_path / "runs")).table.episodes)
    assert (info["task"], info["verdict"], info["operator"]) == ("crane", "success", "Ada")
