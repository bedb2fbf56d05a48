"""Open served pages in Chromium; errors of their scripts and requests to other origins fail the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser tests: apt install chromium"),
]
"""Marks of a module of such tests, which also passes ``playwright.sync_api`` to `pytest.importorskip`."""

WAIT_MS = 20_000
_PAUSE_S = 0.05
"""Time between two looks into a page, which works while it is looked at, seconds."""

_AXE = find_spec("axe_playwright_python")
AXE = None if _AXE is None or _AXE.origin is None else Path(_AXE.origin).with_name("axe.min.js")
"""The file of axe-core 4, or None."""
needs_axe = pytest.mark.skipif(AXE is None, reason="no axe-core: launch/setup browser")


@contextmanager
def chromium(*flags: str) -> Iterator[Any]:
    """Start Chromium, with further flags."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as program:
        browser = program.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        yield browser
        browser.close()


@contextmanager
def watched_pages(browser: Any, schemes: tuple[str, ...] = ("blob:",)) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens a page: its address, a selector to wait for, and options of a new context.

    Args:
        browser: of `chromium`.
        schemes: beginnings of addresses that a page may ask for, besides its own origin.
    """
    contexts, troubles = [], list[str]()

    def opened(url: str, ready: str, *, script: str = "", **options: Any) -> Any:
        own = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}/"

        def check_origin(request: Any) -> None:
            if not request.url.startswith((own, *schemes)):
                troubles.append(f"a request to {request.url}")

        context = browser.new_context(**options)
        contexts.append(context)
        if script:
            context.add_init_script(script)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda line: troubles.append(line.text) if "Content Security" in line.text else None)
        page.on("request", check_origin)
        page.goto(url)
        page.wait_for_selector(ready)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def shows(page: Any, selector: str, text: str) -> None:
    """Wait for a text."""
    until(lambda: text in (page.text_content(selector) or ""), 20.0, _PAUSE_S)


def holds(page: Any, expression: str, seconds: float = 20.0) -> None:
    """Wait until JavaScript gives true; `wait_for_function` can't be used, since the page's policy forbids `eval`."""
    until(lambda: page.evaluate(expression), seconds, _PAUSE_S)


def axe_violations(page: Any, rules: str = "{}") -> list[dict[str, Any]]:
    """Return what axe-core finds in a page whose policy is bypassed; the options switch further rules on."""
    assert AXE is not None
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE.read_text())
    # Only violations are described; without it most of the time goes into descriptions of what is right.
    found = page.evaluate(f"axe.run({{resultTypes: ['violations'], rules: {rules}}}).then((all) => all.violations)")
    return [dict(one) for one in found]
