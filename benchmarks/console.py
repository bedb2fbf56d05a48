"""Measure the operator's console: ``python benchmarks/console.py [--seconds 60] [--watchers 20]``.

Needs the extra ``console``, Playwright (``pip install playwright``) and Chromium (``apt install chromium``). One
machine runs the robot, the console, the watchers and the browser, so each figure contains all of them. Prints JSON.

- ``first_paint_ms``: the browser's first contentful paint, of loads without a cache.
- ``page_kb``: all files of the page, gzipped.
- ``sensor_to_screen_ms``: from the stamp of a reading to the end of the page's drawing of it.
- ``stop_ms``: from the browser's pointer event to the call of the driver's ``stop``, beside watchers and one
  that reads nothing.
- ``loop``: share of a 500 Hz loop's periods within 0.5 ms, without the console and beside it, in a process of its own.
- ``memory``: resident memory of the console's process and JavaScript heap of the page, after 10% of the states and at
  the end; telemetry at a higher rate stands for more time.
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
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import rlenv_robot as rr
from hal import Field, RobotSpec, RobotState, Spec
from real import RemoteRobot, Server
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.serving.console.server import ConsoleServer, ConsoleSettings

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


def watch(console: ConsoleServer, over: threading.Event) -> None:
    """Be a page that shows what it is sent."""
    base, taken = f"127.0.0.1:{console.port}", 0
    with connect(f"ws://{base}/ws", origin=f"http://{base}") as web:  # type: ignore[arg-type]
        web.send(json.dumps({"t": "login", "token": console.tokens.own}))
        while not over.is_set():
            try:
                message = web.recv()
            except ConnectionClosed:  # the console has ended
                return
            if '"t":"state"' in str(message):
                taken += 1
                web.send(json.dumps({"t": "seen", "n": taken}))


def stall(console: ConsoleServer) -> socket.socket:
    """Return a page that logs in and reads nothing."""
    base, login = f"127.0.0.1:{console.port}", json.dumps({"t": "login", "token": console.tokens.own}).encode()
    web = socket.create_connection(("127.0.0.1", console.port))
    web.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {base}\r\nOrigin: http://{base}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    web.recv(300)
    web.sendall(bytes((0x81, 0x80 | len(login), 0, 0, 0, 0)) + login)
    return web


SCREEN = """() => { const draw = render; let last = 0; window.samples = [];
  window.render = () => { draw(); if (state && state.stamp_ns && state.stamp_ns !== last) {
    last = state.stamp_ns; samples.push([last, performance.timeOrigin + performance.now()]); } }; }"""
POINTER = """() => addEventListener("pointerdown", (event) => {
  window.pressedAt = performance.timeOrigin + event.timeStamp; }, true)"""


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


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


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


def beside(command: list[str], measure: Callable[[], Any]) -> Any:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(3.0)
    try:
        return measure()
    finally:
        process.terminate()
        process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--watchers", type=int, default=20)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--memory-seconds", type=float, default=60.0)
    parser.add_argument("--memory-hz", type=float, default=300.0, help="states a second meanwhile")
    args = parser.parse_args()
    rr.register_robot(RobotModel(SPEC.name, spec=SPEC, driver=Timed))
    page_folder = Path(__file__).parents[1] / "rlenv_robot" / "console" / "page"
    result: dict[str, Any] = {"load": os.getloadavg(), "cores": os.cpu_count()}
    result["page_kb"] = round(sum(len(gzip.compress(file.read_bytes(), 9)) for file in page_folder.iterdir()) / 1e3, 1)
    with ExitStack() as ends:
        program = ends.enter_context(sync_playwright())
        flags = [
            "--no-sandbox",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
            "--enable-precise-memory-info",
        ]
        browser = program.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        ends.callback(browser.close)
        robot = Timed()
        server = ends.enter_context(serve(30.0, robot))
        console = ends.enter_context(ConsoleServer(ConsoleSettings(address=server.address, port=0)))
        paints = []
        for _ in range(5):
            page = browser.new_context().new_page()
            page.goto(console.url)
            page.wait_for_selector("#state[data-s]")
            while not (paint := page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")):
                page.wait_for_timeout(50)
            paints.append(paint)
            page.context.close()
        result["first_paint_ms"] = quantiles(paints)
        page = browser.new_page()
        page.goto(console.url)
        page.click("[data-act=arm]")
        page.wait_for_selector("#state[data-s=ready]")
        result["sensor_to_screen_ms"] = screen(page, args.seconds)
        over = threading.Event()
        watchers = [threading.Thread(target=watch, args=(console, over), daemon=True) for _ in range(args.watchers)]
        for watcher in watchers:
            watcher.start()
        ends.callback(stall(console).close)
        result["stop_ms"] = stops(page, robot, args.stops)
        over.set()
        page.close()
    result["loop"] = loop(args.seconds)
    result["memory"] = memory(args.memory_seconds, args.memory_hz)
    print(json.dumps(result, indent=2))


def loop(seconds: float) -> dict[str, float]:
    """Compare a served 500 Hz loop alone and beside a console in a process of its own."""
    with serve(30.0) as server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        alone = regular(server.address, seconds)
        command = [sys.executable, "-m", "rlenv_robot", "console", server.address, "--port", "0"]
        return {"alone": alone, "beside_console": beside(command, lambda: regular(server.address, seconds))}


def memory(seconds: float, rate_hz: float) -> dict[str, float]:
    """Let one page show states for so long, and return memory at the beginning and at the end."""
    with ExitStack() as ends:
        program = ends.enter_context(sync_playwright())
        flags = ["--no-sandbox", "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = program.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        ends.callback(browser.close)
        server = ends.enter_context(serve(rate_hz))
        console = ends.enter_context(ConsoleServer(ConsoleSettings(address=server.address, port=0)))
        page = browser.new_page()
        page.goto(console.url)
        page.wait_for_selector("#state[data-s]")
        figures: dict[str, float] = {"states": round(seconds * rate_hz)}
        for name, share in (("begin", 0.1), ("end", 0.9)):
            page.wait_for_timeout(seconds * share * 1e3)
            heap = page.evaluate("() => { if (window.gc) gc(); return performance.memory.usedJSHeapSize; }")
            figures |= {f"console_mib_{name}": resident_mib(os.getpid()), f"page_mib_{name}": heap / 2**20}
        return {key: round(value, 2) for key, value in figures.items()}


if __name__ == "__main__":
    main()
