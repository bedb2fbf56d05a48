"""Measure the operator's console: ``python benchmarks/console.py [--seconds 40] [--watchers 20]``.

Needs the extra ``console``, Playwright (``pip install playwright``) and Chromium (``apt install chromium``). Robot,
console, watchers and browser are processes of their own on one machine, so each figure contains all of them. A whole
run takes at most 8 minutes. Prints a line as each figure is done on standard error, and JSON at the end.

- ``first_paint_ms``: the browser's first contentful paint, of loads without a cache.
- ``page_kb``: all files of the page, gzipped.
- ``sensor_to_screen_ms``: from the stamp of a reading to the end of the page's drawing of it, without watchers and
  beside them.
- ``stop_ms``: from the browser's pointer event to the call of the driver's ``stop``, beside watchers and one
  that reads nothing.
- ``loop``: share of a 500 Hz loop's periods within 0.5 ms, without the console and beside it.
- ``memory``: resident memory of a process with the console, and JavaScript heap of the page, after 10% of the states of
  8 hours at 30 Hz and at the end. Time is compressed: the console is handed readings, images, acts, episodes and pages
  that come and go as fast as it takes them, and the page's own handler is handed the states' texts, with a drawing
  after every 20. Each counts what it took; the hours of 30 Hz that these are stand beside.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from playwright.sync_api import sync_playwright
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import rlenv_robot as rr
from hal import Field, Image, RobotSpec, RobotState, Spec
from real import RemoteRobot, Server
from rlenv_operate.console.acts import ActRecord
from rlenv_operate.console.server import ConsoleServer, ConsoleSettings
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.serving.robot_feed import FinishedEpisode

SPEC = RobotSpec(
    "console_benchmark",
    Spec("sensors", (Field("position", (6,), "float32", -10, 10, "rad"),)),
    Spec("commands", (Field("target", (6,), "float32", -1, 1, "rad"),)),
    rate_hz=500.0,
    home={"target": (0.0,) * 6},
    measured_by={"target": "position"},
)


class Timed:
    """A robot that reaches each command exactly, and notes when its driver is stopped."""

    spec, simulated = SPEC, True

    def __init__(self) -> None:
        self.stopped_s = 0.0
        self._position = np.zeros(6, np.float32)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.stopped_s = 0.0
        return self._read()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self._position = np.array(command["target"])
        return self._read()

    def _read(self) -> RobotState:
        position = self._position.copy()
        return RobotState({"position": position}, {"target": position.copy()}, time.monotonic_ns())

    def stop(self, reason: str) -> None:
        self.stopped_s = time.time()

    def close(self) -> None:
        pass


def serve(telemetry_hz: float, robot: Timed | None = None) -> Server:
    return Server(robot or Timed(), telemetry="tcp://127.0.0.1:*", telemetry_hz=telemetry_hz, watchdog_s=5.0).start()


def quantiles(values: list[float]) -> dict[str, float]:
    median, most, worst = np.quantile(values, (0.5, 0.99, 1.0)).round(2).tolist()
    return {"median": median, "p99": most, "longest": worst, "n": len(values)}


# -- Processes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The address of a console's page."""

    url: str

    @property
    def base(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def token(self) -> str:
        return urlsplit(self.url).fragment.removeprefix("token=")


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run this program in another role, from its first line of output to its end by a signal."""
    command = [sys.executable, __file__, "--role", *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.terminate()
        child.communicate()


@contextmanager
def console_of(server: Server) -> Iterator[Place]:
    with process("console", server.address) as child:
        assert child.stdout is not None
        yield Place(child.stdout.readline().strip())


def run_console(address: str) -> None:
    with ConsoleServer(ConsoleSettings(address=address, port=0)) as console:
        print(console.url, flush=True)
        threading.Event().wait()


@contextmanager
def login(place: Place) -> Iterator[Any]:
    with connect(f"ws://{place.base}/ws", origin=f"http://{place.base}") as web:  # type: ignore[arg-type]
        web.send(json.dumps({"t": "login", "token": place.token}))
        yield web


def watch(place: Place, states: int | None = None) -> None:
    """Be a page that shows what it is sent, until the console ends, or for so many states."""
    taken = 0
    with login(place) as web:
        while states is None or taken < states:
            try:
                message = web.recv()
            except ConnectionClosed:  # the console has ended
                return
            if '"t":"state"' in str(message)[:40]:
                taken += 1
                web.send(json.dumps({"t": "seen", "n": taken}))


def run_watchers(url: str, count: str) -> None:
    watchers = [threading.Thread(target=watch, args=(Place(url),), daemon=True) for _ in range(int(count))]
    for watcher in watchers:
        watcher.start()
    print("watching", flush=True)
    for watcher in watchers:
        watcher.join()


def stall(place: Place) -> socket.socket:
    """Return a page that logs in and reads nothing."""
    login = json.dumps({"t": "login", "token": place.token}).encode()
    host, _, port = place.base.partition(":")
    web = socket.create_connection((host, int(port)))
    web.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {place.base}\r\nOrigin: http://{place.base}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    web.recv(300)
    web.sendall(bytes((0x81, 0x80 | len(login), 0, 0, 0, 0)) + login)
    return web


# -- In the browser --------------------------------------------------------------------------------------------

SCREEN = """() => { if (!window.samples) { const draw = render; let last = 0;
    window.render = () => { draw(); if (state && state.stamp_ns && state.stamp_ns !== last) {
      last = state.stamp_ns; samples.push([last, performance.timeOrigin + performance.now()]); } }; }
  window.samples = []; }"""
POINTER = """() => addEventListener("pointerdown", (event) => {
  window.pressedAt = performance.timeOrigin + event.timeStamp; }, true)"""
FEED = """async ([count, seconds]) => {
  socket.onmessage = () => {};
  const texts = Array.from({length: 100}, (_, n) => JSON.stringify({...state, sent_ns: n, stamp_ns: n, age_s: 0.01,
    sensors: {position: Array.from({length: 6}, (_, k) => Math.sin(n + k))}}));
  const end = performance.now() + 1e3 * seconds;
  let passed = performance.now(), n = 0;
  for (; n < count && performance.now() < end; n++) {
    receive(JSON.parse(texts[n % 100]));
    if (n % 20 === 19) render();
    if (performance.now() - passed > 50) { await new Promise((go) => setTimeout(go, 0)); passed = performance.now(); }
  }
  if (window.gc) { gc(); await new Promise((go) => setTimeout(go, 200)); gc(); }
  return [performance.memory.usedJSHeapSize / 2 ** 20, n]; }"""


def open_browser(ends: ExitStack) -> Any:
    program = ends.enter_context(sync_playwright())
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    flags += ["--enable-precise-memory-info", "--js-flags=--expose-gc"]
    browser = program.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
    ends.callback(browser.close)
    return browser


def paints(browser: Any, place: Place) -> dict[str, float]:
    times = []
    for _ in range(5):
        page = browser.new_context().new_page()
        page.goto(place.url)
        page.wait_for_selector("#state[data-s]")
        while not (paint := page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")):
            page.wait_for_timeout(50)
        times.append(paint)
        page.context.close()
    return quantiles(times)


def screen(page: Any, seconds: float) -> dict[str, float]:
    page.evaluate(SCREEN)
    page.wait_for_timeout(seconds * 1e3)
    shift_ns = time.time_ns() - time.monotonic_ns()
    return quantiles([shown_ms - (stamp_ns + shift_ns) / 1e6 for stamp_ns, shown_ms in page.evaluate("samples")])


def stops(page: Any, robot: Timed, count: int) -> dict[str, float]:
    page.evaluate(POINTER)
    times = []
    for _ in range(count):
        page.fill("#text", "benchmark")
        page.click("[data-act=arm]")
        page.wait_for_selector("#state[data-s=ready]")
        page.click("#stop")
        page.wait_for_selector("#state[data-s=stopped]")
        times.append(robot.stopped_s * 1e3 - page.evaluate("pressedAt"))
    return quantiles(times)


# -- Loop and memory -------------------------------------------------------------------------------------------


def regular(address: str, seconds: float) -> float:
    """Return the share of periods that the loop began within 0.5 ms of their time, over so many seconds."""
    with closing(RemoteRobot(address)) as remote:
        before = remote.status()["cadence"]
        time.sleep(seconds)
        after = remote.status()["cadence"]
    counts = np.subtract(after["counts"], before["counts"])
    edges = after["edges_ms"]
    inside = counts[: sum(edge <= 0.5 for edge in edges)].sum()
    return round(float(inside / max(1, counts.sum())), 5)


def loop(seconds: float) -> dict[str, float]:
    """Compare a served 500 Hz loop alone and beside a console."""
    with serve(30.0) as server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        alone = regular(server.address, seconds)
        with console_of(server):
            return {"alone": alone, "beside_console": regular(server.address, seconds)}


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


EIGHT_HOURS = 8 * 3600 * 30
"""States of 8 hours at 30 Hz."""


def run_memory(states: str, seconds: str) -> None:
    """Hand a console states as fast as it takes them, and print memory after 10% and at the end, as JSON."""
    total, end_s, done, begin_mib = int(states), time.monotonic() + float(seconds), 0, 0.0
    picture = bytes(30_000)
    with serve(30.0) as server, ConsoleServer(ConsoleSettings(address=server.address, port=0)) as console:
        with closing(RemoteRobot(server.address)) as remote:
            remote.reset({})
        while console._feed.look.snapshot is None:
            time.sleep(0.01)
        watchers = [threading.Thread(target=watch, args=(Place(console.url),), daemon=True) for _ in range(3)]
        for watcher in watchers:
            watcher.start()
        loop_of, taken = console, threading.Semaphore(200)
        publish = loop_of._publish_state

        def count() -> None:
            publish()
            taken.release()

        loop_of._publish_state = count  # type: ignore[method-assign]
        look = console._feed.look
        while done < total and time.monotonic() < end_s:
            assert look.snapshot is not None
            taken.acquire(timeout=1.0)  # no more than 200 wait for the console's loop
            look = replace(look, snapshot=replace(look.snapshot, sent_ns=done, stamp_ns=done))
            console._feed._say(look)
            done += 1
            if done % 10 == 0:
                console._feed._images["eye"] = Image(picture, "jpeg", done)
                console._post("image")
            if done % 3_000 == 0:
                console._log.add(ActRecord(time.time(), "ann", "operate", "hold", "", True, "held"))
                console._feed._episodes.append(FinishedEpisode(done, time.time(), 1.0, "ann", "holding", "end"))
                console._post("acts")
                console._post("episodes")
            if done % 30_000 == 0:
                watch(Place(console.url), 5)  # a page that comes and goes
            if begin_mib == 0.0 and done >= total / 10:
                begin_mib = resident_mib()
        figures = {"console_states": done, "console_hours_at_30_hz": round(done / 30 / 3600, 2)}
        print(json.dumps({**figures, "console_mib_begin": begin_mib, "console_mib_end": resident_mib()}), flush=True)


def memory(states: int, seconds: float) -> dict[str, float]:
    """Return the memory of a console and of a page at the same time, after 10% of the states and at the end."""
    with ExitStack() as ends:
        child = ends.enter_context(process("memory", str(states), str(seconds)))
        browser = open_browser(ends)
        server = ends.enter_context(serve(30.0))
        place = ends.enter_context(console_of(server))
        with closing(RemoteRobot(server.address)) as remote:
            remote.reset({})
        page = browser.new_page()
        page.set_default_timeout(3e3 * seconds)
        page.goto(place.url)
        page.wait_for_selector("#joint-table tbody tr")
        begin_mib, begun = page.evaluate(FEED, [states // 10, seconds])
        end_mib, done = page.evaluate(FEED, [states - begun, seconds])
        figures = {"page_mib_begin": begin_mib, "page_mib_end": end_mib, "page_states": begun + done}
        assert child.stdout is not None
        figures |= json.loads(child.stdout.readline())
    for what in ("console", "page"):
        figures[f"{what}_growth"] = figures[f"{what}_mib_end"] / figures[f"{what}_mib_begin"] - 1
    return {key: round(value, 4) for key, value in figures.items()}


def note(name: str, result: dict[str, Any]) -> None:
    print(f"{name}: {result[name]}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement of screen and loop")
    parser.add_argument("--watchers", type=int, default=20)
    parser.add_argument("--stops", type=int, default=100)
    parser.add_argument("--states", type=int, default=EIGHT_HOURS, help="handed to console and page, for their memory")
    parser.add_argument("--memory-seconds", type=float, default=240.0, help="longest time of that")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    rr.register_robot(RobotModel(SPEC.name, spec=SPEC, driver=Timed))
    if args.role:
        {"console": run_console, "watch": run_watchers, "memory": run_memory}[args.role[0]](*args.role[1:])
        return
    page_folder = Path(__file__).parents[1] / "rlenv_robot" / "serving" / "console" / "page"
    result: dict[str, Any] = {"load": os.getloadavg(), "cores": os.cpu_count()}
    result["page_kb"] = round(sum(len(gzip.compress(file.read_bytes(), 9)) for file in page_folder.iterdir()) / 1e3, 1)
    with ExitStack() as ends:
        browser = open_browser(ends)
        robot = Timed()
        server = ends.enter_context(serve(30.0, robot))
        place = ends.enter_context(console_of(server))
        result["first_paint_ms"] = paints(browser, place)
        note("first_paint_ms", result)
        page = browser.new_page()
        page.goto(place.url)
        page.click("[data-act=arm]")
        page.wait_for_selector("#state[data-s=ready]")
        result["sensor_to_screen_ms"] = {"alone": screen(page, args.seconds)}
        child = ends.enter_context(process("watch", place.url, str(args.watchers)))
        assert child.stdout is not None
        child.stdout.readline()
        ends.callback(stall(place).close)
        result["sensor_to_screen_ms"]["beside_watchers"] = screen(page, args.seconds)
        note("sensor_to_screen_ms", result)
        result["stop_ms"] = stops(page, robot, args.stops)
        note("stop_ms", result)
        page.close()
    result["loop"] = loop(args.seconds)
    note("loop", result)
    result["memory"] = memory(args.states, args.memory_seconds)
    note("memory", result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
