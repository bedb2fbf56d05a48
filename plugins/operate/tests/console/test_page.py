"""The page in a browser, as people use it: each control with its effect on a robot."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.source import Frame
from hal.cameras.wrapper import WithCameras
from real import RemoteRobot, Server
from real.protocol.keys import Role
from recorder.log.preferences import read_judgements
from rlenv_language.chat.preferences import preferences
from rlenv_language.chat.transcripts import read_transcripts
from rlenv_language.text.dialogue import Dialogue
from rlenv_operate.console import mover
from rlenv_operate.console.access import new_token
from rlenv_operate.console.mover import MoverSettings
from rlenv_operate.console.questions import Question
from rlenv_robot.data.chats import TEXT
from tests.browser import (
    IN_BROWSER,
    WAIT_MS,
    axe_violations,
    chromium,
    holds,
    needs_axe,
    shows,
    watched_pages,
)
from tests.fakes import Integrator, until

pytest.importorskip("playwright.sync_api", reason="no browser tests: pip install playwright")
server = pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
pytestmark = IN_BROWSER
PAGE = Path(server.__file__).with_name("page")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium("--use-angle=swiftshader", "--enable-unsafe-swiftshader") as browser:
        yield browser


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    return {role.value: new_token(tmp_path / "tokens", f"p-{role}", role) for role in Role}


@pytest.fixture
def console(served: Server, tokens: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    settings = server.ConsoleSettings(
        address=served.address, port=0, tokens=tmp_path / "tokens", acts=tmp_path / "acts.jsonl",
        runs=tmp_path / "logs", mover=MoverSettings(record=tmp_path / "runs", velocity=1.0),
    )  # fmt: skip
    with server.ConsoleServer(settings) as console:
        yield console


@pytest.fixture
def open_page(browser: Any, console: Any, tokens: dict[str, str]) -> Iterator[Any]:
    """Open the page with a role's token."""
    with watched_pages(browser, ("blob:", "data:")) as opened:
        yield lambda role="operate", **options: opened(
            f"http://127.0.0.1:{console.port}/#token={tokens[role]}", "#me:not(:empty)", **options
        )


def state_is(page: Any, name: str) -> None:
    page.wait_for_selector(f"#state[data-s={name}]")


def test_each_control_has_its_effect_on_the_robot(
    open_page: Any, served: Server, robot: Integrator, tmp_path: Path
) -> None:
    page = open_page()
    state_is(page, "disarmed")
    page.click("[data-act=arm]")
    state_is(page, "ready")
    assert len(robot.resets) == 1
    page.focus("#pad")
    page.keyboard.down("Space")
    page.keyboard.down("KeyQ")
    until(lambda: robot.commands and robot.commands[-1][0] > 0.1)
    page.wait_for_selector("#pad[data-engaged=true]")
    page.keyboard.up("KeyQ")
    page.keyboard.down("KeyS")
    until(lambda: robot.commands[-1][1] < -0.05)
    page.keyboard.up("KeyS")
    page.keyboard.up("Space")
    page.wait_for_selector("#pad[data-engaged=false]")
    page.click("[data-act=success]")
    state_is(page, "holding")
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.click("[data-act=hold]")
    state_is(page, "holding")
    page.fill("#text", "a cable is loose")
    page.click("#stop")
    state_is(page, "stopped")
    assert "p-operate at the console: a cable is loose" in page.text_content("#why")
    until(lambda: page.input_value("#text") == "")
    page.click("[data-act=arm]")
    assert "what was found" in page.text_content("#outcome")
    page.fill("#text", "cable fixed")
    page.click("[data-act=arm]")
    state_is(page, "ready")
    assert robot.resets[-1]["clear_stop"] == "p-operate: cable fixed"
    for verdict in ("failure", "discard"):
        page.click(f"[data-act={verdict}]")
        state_is(page, "holding")
        page.click("[data-act=arm]")
        state_is(page, "ready")
    assert page.locator("#episode-table tbody tr").count() == 1  # the one in which the robot was moved
    lines = [json.loads(line) for line in (tmp_path / "acts.jsonl").read_text().splitlines()]
    assert [line["act"] for line in lines if line["ok"]] == [
        "arm", "success", "arm", "hold", "stop", "arm", "failure", "arm", "discard", "arm",
    ]  # fmt: skip
    assert {line["name"] for line in lines} == {"p-operate"}


def test_stop_is_first_in_the_order_of_tabs_and_at_escape_anywhere(open_page: Any, served: Server) -> None:
    page = open_page()
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.evaluate("document.activeElement.blur()")
    page.evaluate("document.body.focus()")
    first = page.evaluate(
        "[...document.querySelectorAll('button,input,canvas,[tabindex]')]"
        ".find((e) => e.tabIndex >= 0 && !e.disabled).id"
    )
    assert first == "stop"
    page.focus("#text")
    page.keyboard.press("Escape")
    state_is(page, "stopped")


def test_a_reset_and_a_verdict_are_answered_with_buttons(open_page: Any, console: Any) -> None:
    page = open_page("move")
    console._questions.ask(Question("1", "reset", "<b>cube</b> to A", True, float("inf")))
    page.wait_for_selector("#question:visible")
    assert "<b>cube</b> to A" in page.text_content("#question-text")  # a text, whatever is in it
    page.click("[data-act=failure]")
    shows(page, "#question-text", "Failure")
    page.fill("#text", "cube at A")
    page.click("[data-act=reset_done]")
    until(lambda: console._questions.pending is None)
    reply = console._questions.take_reply("1")
    assert reply is not None
    assert (reply.by, reply.ready, reply.verdict, reply.note) == ("p-move", True, "failure", "cube at A")
    console._questions.ask(Question("2", "reset", "", False, float("inf")))
    page.click("[data-act=reset_refused]")
    until(lambda: console._questions.pending is None)
    reply = console._questions.take_reply("2")
    assert reply is not None
    assert not reply.ready


def test_a_token_without_rights_sees_and_stops(open_page: Any, served: Server) -> None:
    page = open_page("watch")
    state_is(page, "disarmed")
    assert page.locator("#operate").is_hidden()
    assert page.locator("#drive").is_hidden()
    assert page.locator("#joint-table tbody tr").count() == 2
    page.evaluate("act('arm')")  # as a page would that was tampered with
    shows(page, "#outcome", "does not allow")
    assert served.lifecycle.state == "disarmed"
    page.click("#stop")
    state_is(page, "stopped")
    button = open_page("stop")
    state_is(button, "stopped")
    assert button.locator("#joints").is_hidden()


def test_a_wrong_token_is_refused(browser: Any, console: Any, tokens: dict[str, str]) -> None:
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{console.port}/")
    page.fill("#token", "guess")
    page.keyboard.press("Enter")
    shows(page, "#login-error", "not admitted")
    page.fill("#token", tokens["watch"])
    page.keyboard.press("Enter")
    page.wait_for_selector("#main:visible")
    page.close()


def test_a_page_of_another_origin_reaches_nothing(browser: Any, console: Any, tokens: dict[str, str]) -> None:
    page = browser.new_page()
    page.route("http://evil.example/**", lambda route: route.fulfill(body="<h1>hello</h1>", content_type="text/html"))
    page.goto("http://evil.example/")
    attempt = """async ([port, token]) => {
      const url = `127.0.0.1:${port}`;
      const read = await fetch(`http://${url}/`).then((answer) => answer.text()).catch(() => "refused");
      const socket = await new Promise((done) => {
        const one = new WebSocket(`ws://${url}/ws`);
        one.onopen = () => one.send(JSON.stringify({t: "login", token}));
        one.onmessage = (event) => done(event.data);
        one.onclose = () => done("refused");
      });
      return [read, socket];
    }"""
    assert page.evaluate(attempt, [console.port, tokens["operate"]]) == ["refused", "refused"]
    frame = f"<iframe src='http://127.0.0.1:{console.port}/'></iframe>"
    page.set_content(frame)
    page.wait_for_timeout(500)
    assert all("rlenv-robot operate console" not in frame.content() for frame in page.frames[1:])
    page.close()


def test_two_operators_share_one_robot(open_page: Any, served: Server, robot: Integrator) -> None:
    ann, bob = open_page("operate"), open_page("move")
    bob.click("[data-act=arm]")
    state_is(ann, "ready")
    ann.click("[data-act=arm]")
    shows(ann, "#outcome", "p-move moves the robot")
    assert "p-move" in ann.text_content("#clutch")
    ann.check("#take")
    ann.click("[data-act=arm]")
    until(lambda: len(robot.resets) == 2)
    shows(bob, "#clutch", "p-operate")
    bob.click("#stop")
    state_is(ann, "stopped")
    assert "p-move at the console" in ann.text_content("#why")


def test_losing_the_focus_holds_the_robot(open_page: Any, robot: Integrator) -> None:
    page = open_page()
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.focus("#pad")
    page.keyboard.down("Space")
    page.keyboard.down("KeyQ")
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    page.focus("#text")
    page.wait_for_selector("#pad[data-engaged=false]")
    page.wait_for_timeout(300)
    held, count = robot.commands[-1], len(robot.commands)
    until(lambda: len(robot.commands) > count + 10)
    assert set(robot.commands[count:]) == {held}
    page.keyboard.up("KeyQ")
    page.keyboard.up("Space")


def test_a_reload_in_mid_episode_finds_it_and_holds_meanwhile(
    open_page: Any, served: Server, robot: Integrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover, "GONE_S", 60.0)  # a busy machine loads the page in more than the usual 5 s
    page = open_page()
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.focus("#pad")
    page.keyboard.down("Space")
    page.keyboard.down("KeyQ")
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    page.reload()
    page.wait_for_selector("#me:not(:empty)")
    state_is(page, "running")
    held, count = robot.commands[-1], len(robot.commands)
    until(lambda: len(robot.commands) > count + 10)
    assert set(robot.commands[count:]) == {held}
    page.keyboard.up("KeyQ")
    page.keyboard.up("Space")
    page.focus("#pad")
    page.keyboard.down("Space")
    page.keyboard.down("KeyA")
    until(lambda: robot.commands[-1][0] < held[0] - 0.02)
    steps = np.abs(np.diff([command[0] for command in robot.commands[count:]]))
    assert steps.max() <= 1.0 * robot.spec.period_s + 1e-6
    assert served.lifecycle.state == "running"


def test_a_lost_server_is_said_and_a_stop_that_fails_too(browser: Any, robot: Integrator) -> None:
    with Server(robot, telemetry="tcp://127.0.0.1:*") as lost:
        console = server.ConsoleServer(server.ConsoleSettings(address=lost.address, port=0)).start()
        page = browser.new_page()
        page.goto(console.url)
        page.wait_for_selector("body[data-live=true]")
    page.wait_for_selector("body[data-live=false]", timeout=WAIT_MS)
    assert page.locator("#stale").is_visible()
    assert page.locator("[data-act=arm]").is_disabled()
    assert page.locator("#stop").is_enabled()
    page.click("#stop")
    shows(page, "#notice", "NOT confirmed")
    console.close()
    shows(page, "#stale", "no connection to the console")
    page.click("#stop")
    shows(page, "#notice", "NOT SENT")
    page.close()


def test_everything_but_the_drawing_works_without_webgl(open_page: Any, served: Server) -> None:
    page = open_page(script="HTMLCanvasElement.prototype.getContext = () => null;")
    shows(page, "#scene-note", "WebGL")
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.click("#stop")
    state_is(page, "stopped")


def test_every_control_has_a_name_in_both_languages_and_fits_a_phone(open_page: Any) -> None:
    page = open_page(viewport={"width": 375, "height": 700})
    page.wait_for_selector("#joint-table tbody tr")
    names = """() => [...document.querySelectorAll('button,input,canvas,[role=application]')]
      .filter((e) => e.id !== 'token' && e.offsetParent !== null)
      .map((e) => e.getAttribute('aria-label') || e.textContent.trim()
        || (e.labels && e.labels[0]?.textContent.trim()))"""
    english = page.evaluate(names)
    assert all(english)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.click("#language")
    chinese = page.evaluate(names)
    assert page.evaluate("document.documentElement.lang") == "zh"
    assert len(chinese) == len(english)
    assert sum(any("一" <= letter <= "鿿" for letter in name) for name in chinese) >= len(chinese) - 1
    keys = {language: set(page.evaluate(f"Object.keys(WORDS.{language})")) for language in ("en", "zh")}
    assert keys["en"] == keys["zh"]
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") in ("light", "dark")


@pytest.mark.parametrize("file", ["words.js", "words-zh.js"])
def test_a_word_has_one_meaning(file: str) -> None:
    """JavaScript takes the last of two texts of one word without a complaint."""
    text = (PAGE / file).read_text(encoding="utf-8").split("};")[0]
    words = re.findall(r"(?:^|[ ,{])([a-z_]+): \"", text, re.MULTILINE)
    assert len(words) > 100
    assert [word for word, count in Counter(words).items() if count > 1] == []


def test_a_gamepad_moves_the_robot_while_its_clutch_is_held(open_page: Any, robot: Integrator) -> None:
    script = """const buttons = Array.from({length: 16}, () => ({value: 0}));
      window.pad = {connected: true, axes: [0, 0, 0, 0], buttons};
      navigator.getGamepads = () => [window.pad];"""
    page = open_page(script=script)
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.evaluate("pad.axes[0] = -1")
    page.wait_for_timeout(200)
    assert set(robot.commands) <= {(0.0, 0.0)}  # no clutch, no motion
    page.evaluate("pad.buttons[5].value = 1")
    until(lambda: robot.commands and robot.commands[-1][0] > 0.05)
    page.evaluate("pad.buttons[5].value = 0")
    page.wait_for_selector("#pad[data-engaged=false]")


FAKE_XR = """
  const orientation = {x: 0, y: 0, z: 0, w: 1}, buttons = Array.from({length: 6}, () => ({value: 0}));
  const place = (x, y, z) => ({emulatedPosition: fake.guessed, transform: {position: {x, y, z}, orientation}});
  window.fake = {x: 0, y: 1, z: -0.3, guessed: false, buttons};
  const frame = {getViewerPose: () => place(0, 1.6, 0), getPose: () => place(fake.x, fake.y, fake.z)};
  const session = Object.assign(new EventTarget(), {
    visibilityState: "visible", renderState: {baseLayer: {framebuffer: null}},
    inputSources: [{gripSpace: {}, gamepad: {buttons: fake.buttons}}],
    updateRenderState() {}, requestReferenceSpace: async () => ({}),
    requestAnimationFrame: (draw) => setTimeout(() => draw(0, frame), 16),
    end() { session.dispatchEvent(new Event("end")); },
  });
  fake.session = session;
  window.XRWebGLLayer = class {};
  Object.defineProperty(navigator, "xr", {value: {
    isSessionSupported: async (mode) => mode === "immersive-vr", requestSession: async () => session,
  }});"""


def held_still(robot: Integrator) -> tuple[float, ...]:
    """Wait until the robot gets the same command again and again, and return it."""

    def same() -> bool:
        newest = robot.commands[-10:]
        return len(newest) == 10 and len(set(newest)) == 1

    until(same)
    count = len(robot.commands)
    until(lambda: len(robot.commands) > count + 10)
    assert len(set(robot.commands[count:])) == 1
    return robot.commands[-1]


def test_a_hand_in_space_moves_the_robot_while_the_grip_is_held_and_every_loss_holds(
    open_page: Any, robot: Integrator
) -> None:
    page = open_page(script=FAKE_XR)
    assert page.locator("#touch").is_hidden()
    page.click("[data-act=arm]")
    state_is(page, "ready")
    page.click("#xr-start")
    shows(page, "#xr-note", "grip button")
    page.evaluate("fake.z = -0.4")
    page.wait_for_timeout(200)
    assert set(robot.commands) <= {(0.0, 0.0)}  # no clutch, no motion
    page.evaluate("fake.buttons[1].value = 1")
    page.wait_for_selector("#pad[data-engaged=true]")
    assert held_still(robot) == (0.0, 0.0)  # engaging moves nothing
    # On, away from the person: where a busy machine's messages are too old, the hand is taken anew from where it is.
    until(lambda: page.evaluate("fake.z -= 0.02") < 0 and robot.commands[-1][0] > 0.2, 20.0)
    assert abs(robot.commands[-1][1]) < 1e-3
    page.evaluate("fake.guessed = true; fake.z -= 0.2")  # the headset guesses where the hand is
    shows(page, "#xr-note", "can't be seen")
    page.wait_for_selector("#pad[data-engaged=false]")
    held = held_still(robot)
    page.evaluate("fake.guessed = false")
    shows(page, "#xr-note", "grip button")
    assert held_still(robot) == held  # until the grip was let go of
    page.evaluate("fake.buttons[1].value = 0")
    page.wait_for_timeout(1000)  # the page looks once a frame, and a busy machine draws few of them
    page.evaluate("fake.buttons[1].value = 1")
    page.wait_for_selector("#pad[data-engaged=true]")
    assert held_still(robot) == held  # the hand is elsewhere, and engaging moves nothing
    page.evaluate("fake.session.visibilityState = 'hidden'; fake.session.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("#pad[data-engaged=false]")
    page.evaluate("fake.x = -0.4")
    assert held_still(robot) == held
    page.evaluate("fake.session.visibilityState = 'visible'; fake.buttons[1].value = 0")
    page.wait_for_timeout(150)
    page.evaluate("fake.buttons[1].value = 1")
    page.wait_for_selector("#pad[data-engaged=true]")
    page.evaluate("fake.session.end()")
    page.wait_for_selector("#pad[data-engaged=false]")
    shows(page, "#xr-start", "Follow")
    page.click("#xr-start")
    page.evaluate("fake.buttons[5].value = 1")  # B or Y
    state_is(page, "stopped")
    steps = np.abs(np.diff([command[0] for command in robot.commands]))
    assert steps.max() <= 1.0 * robot.spec.period_s + 1e-6


def test_two_thumb_sticks_move_the_robot_where_there_is_no_webxr(open_page: Any, robot: Integrator) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True)
    page.wait_for_selector("#touch:visible")
    assert page.locator("#xr-start").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    shows(page, "#touch-group", "a, b")
    page.tap("[data-act=arm]")
    state_is(page, "ready")
    page.locator("#touch").scroll_into_view_if_needed()
    box = page.locator("#stick-0").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger = page.context.new_cdp_session(page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in places]})

    touch("touchStart", middle)
    page.wait_for_selector("#pad[data-engaged=true]")
    assert held_still(robot) == (0.0, 0.0)
    touch("touchMove", (middle[0] + box["width"] / 2, middle[1]))
    until(lambda: robot.commands[-1][0] > 0.1)
    assert abs(robot.commands[-1][1]) < 1e-6
    touch("touchEnd")
    page.wait_for_selector("#pad[data-engaged=false]")
    held_still(robot)


class Painted:
    """A camera's source whose newest image a test sets."""

    def __init__(self, jpeg: bytes) -> None:
        self.jpeg = jpeg

    def open(self) -> None: ...

    def read(self) -> Frame:
        time.sleep(0.03)
        return Frame(self.jpeg, time.monotonic_ns())

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def painted(page: Any, colour: str) -> bytes:
    """Return a JPEG of one colour, which the browser encodes."""
    script = """(colour) => { const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [64, 48];
      const drawing = canvas.getContext('2d');
      drawing.fillStyle = colour; drawing.fillRect(0, 0, 64, 48);
      return canvas.toDataURL('image/jpeg').split(',')[1]; }"""
    return base64.b64decode(page.evaluate(script, colour))


SEEN = """() => { const image = document.querySelector('#camera-list img');
  if (!image || !image.naturalWidth) return null;
  const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
  canvas.getContext('2d').drawImage(image, 0, 0, 1, 1);
  const [red, , blue] = canvas.getContext('2d').getImageData(0, 0, 1, 1).data;
  return [image.naturalWidth, image.naturalHeight, red > 200 && blue < 60 ? 'red' : blue > 200 ? 'blue' : 'other']; }"""


def test_a_served_robot_s_camera_is_shown_and_updated(browser: Any, robot: Integrator) -> None:
    page = browser.new_page()
    red, blue = painted(page, "#f00"), painted(page, "#00f")
    source = Painted(red)
    settings = CameraSettings("test", "wrist", width=64, height=48, frozen_s=float("inf"), loss="note")
    camera = Camera(settings, lambda *_: source)
    served = Server(
        WithCameras(robot, [camera]), telemetry="tcp://127.0.0.1:*", telemetry_hz=50, watchdog_s=1.0, cameras=[camera]
    )
    remote = None
    with served, server.ConsoleServer(server.ConsoleSettings(address=served.address, port=0)) as console:
        try:
            remote = RemoteRobot(served.address)
            remote.reset({})
            page.goto(console.url)
            until(lambda: page.evaluate(SEEN) == [64, 48, "red"], 20.0)
            assert page.get_attribute("#camera-list img", "alt") == "wrist"
            until(lambda: page.text_content("#camera-list figcaption").endswith("ms"), 20.0)
            source.jpeg = blue
            until(lambda: page.evaluate(SEEN) == [64, 48, "blue"], 20.0)
            page.reload()
            until(lambda: page.evaluate(SEEN) == [64, 48, "blue"], 20.0)
        finally:
            page.close()
            if remote is not None:
                remote.close()


def test_another_clients_episode_is_shown(open_page: Any, served: Server) -> None:
    page = open_page("watch")
    remote = RemoteRobot(served.address)
    remote.reset({})
    for _ in range(5):
        remote.step({"target": np.float32([0.3, 0.0])})
    page.wait_for_selector("#joint-table tbody tr")
    shows(page, "#joint-table", "0.300")
    remote.close()
    page.wait_for_selector("#episode-table tbody tr")
    assert page.locator("#episode-table tbody tr td").nth(3).text_content().startswith("process ")


def test_a_recorded_episode_is_replayed_beside_its_simulation_and_never_taken_for_live(
    open_page: Any, tmp_path: Path
) -> None:
    with rr.make("so101-reach", record=tmp_path / "logs", steps=20) as env:
        table = env.reset({"seed": 1})
        while not (table["terminated"] or table["truncated"]):
            action = {"joint_target": np.zeros(6, np.float32)}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    page = open_page("watch")
    page.click("#replay summary")
    page.wait_for_selector("#replay-0 option:nth-child(2)", state="attached")
    page.select_option("#replay-0", "0")
    shows(page, "#scene-note", "REPLAY, not live: 0, 0.00 s (0 / 20)")
    page.select_option("#replay-1", "sim")
    until(lambda: page.evaluate("replay.logs[1] !== null"))
    page.click("#replay-next")
    shows(page, "#scene-note", "(1 / 20)")
    page.fill("#replay-at", "19")
    shows(page, "#scene-note", "(19 / 20)")
    page.click("#replay-back")
    page.select_option("#replay-speed", "4")
    page.click("#replay-play")
    shows(page, "#scene-note", "(20 / 20)")
    page.click("#replay-end")
    until(lambda: page.get_attribute("#view", "data-replay") == "false")


def test_a_person_compares_recorded_episodes_by_mouse_and_keyboard(
    open_page: Any, served: Server, tmp_path: Path
) -> None:
    with rr.make("so101-reach", record=tmp_path / "logs", steps=10) as env:
        for seed, target in enumerate((0.0, 0.5, -0.1)):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                action = {"joint_target": np.full(6, target, np.float32)}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    page = open_page(locale="zh-CN")
    shows(page, "#compare-title", "比较")
    page.click("#language")
    shows(page, "#compare-title", "Compare")
    assert page.locator("[data-choice]:enabled").count() == 0
    page.click("#compare-begin")
    page.wait_for_selector("#compare-motion:visible")
    page.wait_for_selector("[data-choice=left]:enabled")
    drawn = "comparison.scenes.every((one) => one.gl && one.last && one.bodies.length)"
    until(lambda: page.evaluate(drawn))
    page.click("[data-choice=left]")
    shows(page, "#compare-note", "left of ")
    page.wait_for_selector("[data-choice=equal]:enabled")
    assert page.evaluate("document.activeElement.id") != "compare-group"
    page.focus("#text")
    page.keyboard.press("ArrowRight")  # elsewhere an arrow is no answer
    page.focus("#compare-group")
    page.keyboard.press("ArrowUp")
    shows(page, "#compare-note", "equal of ")
    page.wait_for_selector("[data-choice=equal]:enabled")
    page.keyboard.press("ArrowDown")
    shows(page, "#compare-note", "No pair is left")
    shows(page, "#act-table", "Preference: left")
    answers = read_judgements((tmp_path / "logs").iterdir())
    assert [(one.choice, one.who) for one in answers] == [
        ("left", "p-operate"), ("equal", "p-operate"), ("skip", "p-operate"),
    ]  # fmt: skip
    assert len({frozenset((one.left, one.right)) for one in answers}) == 3
    guest = open_page("watch")
    assert guest.locator("#compare").is_hidden()
    guest.evaluate("send({ t: 'compare', pair: 1, choice: 'left' })")  # as a page would that was tampered with
    until(lambda: "does not allow" in guest.evaluate("comparison.problem"))
    assert len(read_judgements((tmp_path / "logs").iterdir())) == 3
    page.keyboard.press("Escape")
    state_is(page, "stopped")


def test_two_chat_replies_are_compared_as_texts(open_page: Any, tmp_path: Path) -> None:
    env: Any = rr.make(Dialogue(["<b>may I?</b>"], lambda messages: 0.0), record=tmp_path / "logs")
    for answer in ("gladly", "no <img src=x>"):
        table = env.reset({"seed": 0})
        env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {TEXT: answer}})
    env.close()
    page = open_page(viewport={"width": 375, "height": 700})
    page.click("#compare-begin")
    page.wait_for_selector("#compare-chat:visible")
    sides = [page.text_content(f"#chat-{side}") for side in (0, 1)]
    assert all("<b>may I?</b>" in side for side in sides)
    assert sorted("gladly" in side for side in sides) == [False, True]
    assert page.locator("#compare img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.click("[data-choice=right]")
    shows(page, "#compare-note", "right of ")
    chosen = preferences(read_transcripts(rr.open_source(tmp_path / "logs")), 1, by="person")[0].chosen
    assert chosen.messages[-1]["content"] in sides[1]


def test_the_banner_goes_by_the_age_of_the_readings_in_every_state(
    open_page: Any, served: Server, robot: Integrator, console: Any
) -> None:
    page, is_live = open_page(), "body[data-live=true]"
    page.wait_for_selector(is_live)
    state_is(page, "disarmed")
    assert page.text_content("#joint-table tbody td:nth-child(3)") == "0.000", "before anybody arms it"
    go_on = threading.Event()
    robot.on_reset = lambda: go_on.wait(20) and None
    page.click("[data-act=arm]")
    go_on.set()
    state_is(page, "ready")
    shows(page, "#outcome", "armed: the robot is at its start")
    page.click("#stop")
    state_is(page, "stopped")
    until(lambda: page.text_content("#outcome") in ("", "STOP: stopped") or "stopped" in page.text_content("#outcome"))
    assert "armed" not in page.text_content("#outcome")
    page.wait_for_timeout(1500)  # longer than a reading may be old
    assert page.is_hidden("#stale")
    robot._position = np.float32([0.5, 0.0])  # pushed by hand
    until(lambda: page.text_content("#joint-table tbody td:nth-child(3)") == "0.500")
    console._feed._closing.set()  # as if nothing new came
    page.wait_for_selector("#stale:visible")


def test_a_robot_that_can_not_be_read_is_said_to_be_so_and_can_be_armed(
    open_page: Any, robot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError("switched off")

    monkeypatch.setattr(robot, "read", refuse)
    page = open_page()
    until(lambda: page.is_visible("#stale"))
    shows(page, "#stale", "NOT LIVE")
    assert page.locator("[data-act=arm]").is_enabled()


def test_a_verdict_is_the_owners_and_another_page_is_told_whose_episode_it_is(open_page: Any, served: Server) -> None:
    ann, bob = open_page("operate"), open_page("move")
    ann.click("[data-act=arm]")
    state_is(bob, "ready")
    ann.wait_for_selector("[data-act=success]:enabled")
    assert bob.locator("[data-act=success]").is_disabled()
    bob.evaluate("act('success')")  # as a page would that was tampered with
    shows(bob, "#outcome", "the episode is that of p-operate")
    bob.click("[data-act=hold]")
    shows(bob, "#outcome", "p-operate moves the robot")
    assert served.lifecycle.state == "ready"
    bob.click("#language")
    bob.click("[data-act=hold]")
    shows(bob, "#outcome", "p-operate 正在控制机器人")


def test_without_a_drawing_no_comparison_is_answered(open_page: Any, tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path / "logs", steps=5) as env:
        for seed in range(2):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                action = {"joint_target": np.zeros(6, np.float32)}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    page = open_page(script="HTMLCanvasElement.prototype.getContext = () => null;")
    page.click("#compare-begin")
    shows(page, "#compare-note", "can't be drawn here")
    assert page.locator("[data-choice]:enabled").evaluate_all("(all) => all.map((one) => one.dataset.choice)") == [
        "skip"
    ]
    page.evaluate("comparison.ask('left')")
    page.focus("#compare-group")
    page.keyboard.press("ArrowLeft")
    page.click("[data-choice=skip]")
    shows(page, "#compare-note", "No pair is left")
    assert [one.choice for one in read_judgements((tmp_path / "logs").iterdir())] == ["skip"]


def test_the_chinese_page_has_the_words_of_the_field_and_translates_what_the_server_says(open_page: Any) -> None:
    page = open_page(locale="zh-CN")
    assert page.text_content("#stop span") == "停止"  # 急停 is an emergency stop, which this is not
    assert page.evaluate("t('age')") == "数据时效"
    shows(page, "#me", "p-operate (操作)")
    shows(page, "#why", "服务器已启动")
    page.click("[data-act=arm]")
    shows(page, "#outcome", "已使能：机器人位于起始位置")
    page.click("#stop")
    shows(page, "#why", "p-operate 在控制台：停止")
    shows(page, "#act-table", "已停止；机器人在")
    assert page.evaluate("say('a cable is loose')") == "a cable is loose"


def test_the_robot_is_drawn_where_it_is_seen_and_only_when_something_has_changed(
    open_page: Any, robot: Integrator
) -> None:
    page = open_page(viewport={"width": 390, "height": 600})
    page.evaluate(
        """() => { window.drawn = 0; const draw = scene.bodiesAt.bind(scene);
        scene.bodiesAt = (pose, tint, except) => { drawn += except === null; draw(pose, tint, except); }; }"""
    )
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    holds(page, "!scene.inView")
    page.evaluate("scene.last = [[0, 0, 0, 1, 0, 0, 0], []]; scene.bodies = []")  # this robot has no model
    page.evaluate("$('scene').hidden = false; $('scene').scrollIntoView({block: 'center'})")
    holds(page, "drawn === 1")
    count = page.evaluate("for (let n = 0; n < 5; n++) scene.draw([0, 0, 0.00005, 1, 0, 0, 0], []); drawn")
    assert count == 1
    assert page.evaluate("scene.draw([0, 0, 0.05, 1, 0, 0, 0], []); drawn") == 2
    assert page.evaluate("scene.turn(0.1, 0); drawn") == 3


@needs_axe
@pytest.mark.parametrize("width", [1300, 375])
def test_axe_finds_nothing_critical_or_serious(browser: Any, console: Any, tokens: dict[str, str], width: int) -> None:
    context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900})  # axe comes by evaluate
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"http://127.0.0.1:{console.port}/#token={tokens['operate']}")
    page.wait_for_selector("#joint-table tbody tr")
    for act, state in ((None, "disarmed"), ("[data-act=arm]", "ready"), ("#stop", "stopped")):
        if act is not None:
            page.click(act)
        state_is(page, state)
        for _ in range(2):  # both languages
            found = axe_violations(page)
            assert [(one["id"], one["impact"]) for one in found if one["impact"] in ("critical", "serious")] == []
            page.click("#language")
    context.close()
