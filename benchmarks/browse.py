"""Measure the page of data sets with 100,000 episodes: ``python benchmarks/browse.py [--sets 200]``.

Needs the extras ``console`` and ``parquet``, Playwright (``pip install playwright``) and Chromium (``apt install
chromium``). The data sets are LeRobot's layout without images (`benchmarks/episodes.py`). Server and browser are two
processes on one machine. The index is built before; each figure is the median of several times. Prints JSON.

- ``index_s``: from no index to the served page, once for new data.
- ``serve_s``: from the start of the server to its address, with the index.
- ``open_ms``: from navigation, without a cache, to the first painted tiles with their texts.
- ``filter_ms``: for each filter, from the key or the choice to the painted tiles of the answer. ``none`` is a text
  that no episode has, for which all are read.
- ``end_ms``: from the key End to the painted last tile.
- ``label_ms``: from the key s to the painted label.
- ``load``: the machine's load average, since others may share its processors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from episodes import write_set
from playwright.sync_api import Page, sync_playwright

_PAINTED = """async (wanted) => {
  const shown = () => { const tile = document.getElementById(wanted.tile ?? "tile-0"); return wanted.count
    ? document.getElementById("count").textContent.startsWith(wanted.count)
      && (wanted.count[0] === "0" || (tile && tile.querySelector(".name").textContent !== "…"))
    : tile && tile.textContent.includes(wanted.text); };
  const end = performance.now() + 60000;
  while (!shown() && performance.now() < end) await new Promise((then) => setTimeout(then, 1));
  await new Promise((then) => requestAnimationFrame(() => setTimeout(then)));
  return performance.timeOrigin + performance.now();
}"""

_CONDITION = "episode % 4 = 1 and steps > 2"


class Server:
    """``rlenv-robot data browse`` in a process of its own, with caches of its own."""

    def __init__(self, data: Path, cache: Path) -> None:
        begun_s = time.perf_counter()
        command = [sys.executable, "-m", "rlenv_robot", "data", "browse", str(data), "--port", "0", "--out", str(cache)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = next(line for line in self._process.stdout if "token=" in line)
        self.started_s = time.perf_counter() - begun_s
        self.url = line.split()[-1]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def timed(page: Page, act: Callable[[], Any], **wanted: str) -> float:
    """Return the milliseconds from an act to the painted answer."""
    begun = page.evaluate("performance.timeOrigin + performance.now()")
    act()
    return float(page.evaluate(_PAINTED, wanted)) - float(begun)


def opened(browser: Any, url: str, total: str) -> float:
    page = browser.new_context(viewport={"width": 1300, "height": 850}).new_page()
    page.goto(url, wait_until="commit")
    painted = page.evaluate(_PAINTED, {"count": total})
    taken = float(painted) - float(page.evaluate("performance.timeOrigin"))
    page.context.close()
    return taken


def measure(browser: Any, url: str, total: int, times: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"open_ms": statistics.median(opened(browser, url, str(total)) for _ in range(times))}
    page = browser.new_context(viewport={"width": 1300, "height": 850}).new_page()
    page.goto(url)
    page.evaluate(_PAINTED, {"count": str(total)})
    spans: dict[str, list[float]] = {}
    half = str(total // 2)
    for _ in range(times):
        for name, act, wanted in (
            ("text", lambda: page.fill("[name=text]", "cup"), {"count": f"{half} of"}),
            ("none", lambda: page.fill("[name=text]", "cupboard"), {"count": "0 of"}),
            ("text_cleared", lambda: page.fill("[name=text]", ""), {"count": f"{total} ep"}),
            ("success", lambda: page.select_option("[name=success]", "yes"), {"count": "0 of"}),
            ("success_cleared", lambda: page.select_option("[name=success]", ""), {"count": f"{total} ep"}),
            ("condition", lambda: page.fill("[name=where]", _CONDITION), {"count": f"{total // 4} of"}),
            ("ordered", lambda: page.select_option("[name=order]", "steps"), {"count": f"{total // 4} of"}),
            ("order_cleared", lambda: page.select_option("[name=order]", ""), {"count": f"{total // 4} of"}),
            ("condition_cleared", lambda: page.fill("[name=where]", ""), {"count": f"{total} ep"}),
        ):  # fmt: skip
            if "order" in name:  # the count stays: wait for the answer
                with page.expect_response("**/api/episodes?*") as answer:
                    begun = time.perf_counter()
                    act()
                answer.value.finished()
                page.evaluate("new Promise((then) => requestAnimationFrame(() => setTimeout(then)))")
                spans.setdefault(name, []).append(1e3 * (time.perf_counter() - begun))
            else:
                spans.setdefault(name, []).append(timed(page, act, **wanted))
        page.focus("#grid")
        tile = {"tile": f"tile-{total - 1}", "text": "·"}
        spans.setdefault("end", []).append(timed(page, lambda: page.keyboard.press("End"), **tile))
        page.keyboard.press("Home")
        page.evaluate(_PAINTED, {"text": "·"})
        spans.setdefault("label", []).append(timed(page, lambda: page.keyboard.press("s"), text="✓"))
        page.keyboard.press("u")
        page.get_by_text("undone: 1").wait_for(timeout=60_000)
    figures["end_ms"], figures["label_ms"] = (round(statistics.median(spans.pop(name))) for name in ("end", "label"))
    figures["open_ms"] = round(figures["open_ms"])
    figures["filter_ms"] = {name: round(statistics.median(values)) for name, values in spans.items()}
    page.context.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000, help="in all")
    parser.add_argument("--sets", type=int, default=200, help="data sets that hold them")
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="data sets of an earlier run, or where to keep them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as program:
        data, cache = args.folder or Path(temporary) / "data", Path(temporary) / "cache"
        if not data.exists():
            for number in range(args.sets):
                write_set(data / f"set-{number:04d}", args.episodes // args.sets, args.frames, number)
        for labels in data.glob("*/labels.jsonl"):  # of a run that was interrupted
            labels.unlink()
        first = Server(data, cache)
        first.close()
        server = Server(data, cache)
        figures: dict[str, Any] = {"episodes": args.episodes, "sets": args.sets, "index_s": round(first.started_s, 1),
                                   "serve_s": round(server.started_s, 2)}  # fmt: skip
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = program.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            figures |= measure(browser, server.url, args.episodes, args.times)
        finally:
            server.close()
            browser.close()
    print(json.dumps({**figures, "load": round(os.getloadavg()[0], 1)}, indent=1))


if __name__ == "__main__":
    main()
