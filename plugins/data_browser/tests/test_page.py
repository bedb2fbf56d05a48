"""The page in a browser, as people use it: each key and button with its effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.data_browser.tests.conftest import FRAMES, colour, record
from recorder.log.labels import read_labels
from rlenv_robot.source import open_source
from tests.browser import IN_BROWSER, axe_violations, chromium, needs_axe, shows, watched_pages
from tests.fakes import until

pytest.importorskip("playwright.sync_api", reason="no browser tests: pip install playwright")
pytest.importorskip("rlenv_data_browser.server", reason="the extra 'console' is not installed")
pytestmark = IN_BROWSER

Serve = Callable[..., Any]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    with watched_pages(browser) as opened:
        yield lambda server, query="", **options: opened(
            server.url.replace("/#", f"/{query}#"), "#main:visible", **options
        )


def tiles(page: Any) -> list[str]:
    """Return the numbers of the episodes in the grid, in order."""
    found = page.evaluate(
        "[...document.querySelectorAll('.tile')].sort((a, b) => a.dataset.index - b.dataset.index)"
        ".map((tile) => tile.querySelector('.name').textContent)"
    )
    return [text.partition(" ")[0] for text in found]


def pixel(page: Any, selector: str, x: float, y: float) -> list[int]:
    """Return the colour at a share of a canvas: red, green, blue; of one that is not there yet -99."""
    script = """([selector, x, y]) => { const canvas = document.querySelector(selector);
        if (!canvas) return [-99, -99, -99];
        const ctx = canvas.getContext("2d");
        return [...ctx.getImageData(canvas.width * x, canvas.height * y, 1, 1).data].slice(0, 3) }"""
    found: list[int] = page.evaluate(script, [selector, x, y])
    return found


def looks(page: Any, selector: str, episode: int, frame: int, x: float = 0.5, y: float = 0.5) -> bool:
    expected = colour(episode, frame)[::-1]
    return all(abs(one - other) <= 14 for one, other in zip(pixel(page, selector, x, y), expected, strict=True))


def test_the_grid_shows_thumbnails_that_move_together(run: Path, serve: Serve, open_page: Open) -> None:
    page = open_page(serve(run))
    assert tiles(page) == ["0", "1", "2", "3"]
    shows(page, "#count", "4 episodes")
    for episode in (0, 3):
        until(lambda: looks(page, f"#tile-{episode} .pictures", episode, 0, 0.25), 20.0)  # noqa: B023
    box = page.locator("#tile-1").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 40)  # the end of the episode, in all tiles
    for episode in (0, 1, 3):
        until(lambda: looks(page, f"#tile-{episode} .pictures", episode, FRAMES - 1, 0.25), 20.0)  # noqa: B023
    page.focus("#grid")
    for _ in range(11):
        page.keyboard.press(",")
    until(lambda: looks(page, "#tile-2 .pictures", 2, 0, 0.25), 20.0)


def test_filters_are_in_the_address_and_come_back_from_it(run: Path, serve: Serve, open_page: Open) -> None:
    server = serve(run)
    page = open_page(server)
    page.keyboard.press("/")
    page.keyboard.type("CUP")
    shows(page, "#count", "2 of 4 episodes")
    assert tiles(page) == ["0", "2"]
    page.select_option("[name=source]", "expert")
    until(lambda: tiles(page) == ["2"])
    page.fill("[name=where]", "steps >")
    shows(page, "#error", "syntax error")
    page.fill("[name=where]", "steps > 1000")
    page.wait_for_selector("#empty:visible")
    assert page.is_hidden("#error")
    page.fill("[name=where]", "success = 1")
    until(lambda: tiles(page) == ["2"])
    again = open_page(server, page.url.partition("/?")[2].join(["?", ""]))
    until(lambda: tiles(again) == ["2"])
    assert again.input_value("[name=text]") == "CUP"
    assert again.input_value("[name=source]") == "expert"
    again.click("#clear")
    until(lambda: len(tiles(again)) == 4)
    again.select_option("[name=order]", "began")
    again.select_option("[name=direction]", "desc")
    until(lambda: tiles(again) == ["3", "2", "1", "0"])


def test_keys_label_tag_note_and_undo_and_another_page_sees_it(run: Path, serve: Serve, open_page: Open) -> None:
    server = serve(run)
    page, other = open_page(server), open_page(server)
    page.keyboard.press("s")
    shows(other, "#tile-0 .chips", "✓")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    shows(page, "#marks", "2 chosen")
    assert [page.get_attribute(f"#tile-{n}", "aria-selected") for n in range(3)] == ["false", "true", "true"]
    page.keyboard.press("d")
    shows(other, "#tile-2 .chips", "discarded")
    page.keyboard.press("t")
    page.keyboard.type("wrist, late")
    page.keyboard.press("Enter")
    shows(other, "#tile-1 .chips", "wrist")
    page.keyboard.press("n")
    page.keyboard.type("slipped")
    page.keyboard.press("Enter")
    until(lambda: read_labels(run).get(2, {}).get("note") == "slipped")
    for _ in range(3):
        page.keyboard.press("u")
    shows(page, "#said", "undone: 2")
    until(lambda: "discarded" not in other.text_content("#tile-2 .chips"))
    until(lambda: set(read_labels(run)) == {0})
    page.keyboard.press("Escape")
    assert page.is_hidden("#marks")
    page.keyboard.press("Home")
    page.keyboard.press("Control+a")
    shows(page, "#marks", "all 4 chosen")
    page.click("[data-act=failure]")
    until(lambda: [read_labels(run).get(n, {}).get("verdict") for n in range(4)] == ["failure"] * 4)


def test_one_episode_plays_and_two_are_side_by_side_at_one_time(run: Path, serve: Serve, open_page: Open) -> None:
    page = open_page(serve(run))
    page.keyboard.press("Enter")
    until(lambda: looks(page, ".pane figure[data-camera=top] canvas", 0, 0), 20.0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press(".")
    until(lambda: looks(page, ".pane figure[data-camera=top] canvas", 0, 2), 20.0)
    shows(page, "#clock", "frame 2/24")
    page.keyboard.press("p")
    until(lambda: looks(page, ".pane figure[data-camera=top] canvas", 0, FRAMES - 1), 30.0)
    shows(page, "#play", "Play")
    page.keyboard.press("b")
    page.wait_for_selector(".pane:nth-child(2)")
    until(lambda: looks(page, ".pane:nth-child(2) figure[data-camera=top] canvas", 1, FRAMES - 1), 20.0)
    box = page.locator(".pane:nth-child(1) .strips").bounding_box()
    page.mouse.click(box["x"] + 104, box["y"] + 20)  # the beginning, in both
    for number in (1, 2):
        selector = f".pane:nth-child({number}) figure[data-camera=top] canvas"
        until(lambda: looks(page, selector, number - 1, 0), 20.0)  # noqa: B023
    page.locator(".pane:nth-child(2) h2").click()
    page.keyboard.press("f")
    until(lambda: read_labels(run).get(1, {}).get("verdict") == "failure")
    page.keyboard.press("]")
    shows(page, ".pane:nth-child(2) h2", "1 ·")
    page.reload()
    page.wait_for_selector(".pane:nth-child(2)")
    page.keyboard.press("Escape")
    page.wait_for_selector("#tile-0:visible")
    assert "open=" not in page.url
    page.go_back()
    page.wait_for_selector(".pane:nth-child(2)")


def test_a_selection_is_saved_with_the_places_to_cut(run: Path, serve: Serve, open_page: Open, tmp_path: Path) -> None:
    page = open_page(serve(run))
    page.keyboard.press("x")
    shows(page, "#said", "Open an episode")
    page.keyboard.press("Enter")
    shows(page, "#clock", "frame 0/24")
    page.keyboard.press("Shift+ArrowRight")
    page.click("[data-act=split]")
    shows(page, "#said", "before frame 10")
    page.keyboard.press("Escape")
    shows(page, "#tile-0 .chips", "✂ 2")
    page.fill("[name=text]", "cup")
    until(lambda: tiles(page) == ["0", "2"])
    page.click("#save")
    page.fill("#ask-text", "cups")
    page.keyboard.press("Enter")
    shows(page, "#said", "cups.selection.json")
    data = open_source(tmp_path / "selections" / "cups.selection.json")
    assert data.transitions.lengths.tolist() == [9, 14, 24]
    page.click("#save")
    page.fill("#ask-text", "cups")
    page.keyboard.press("Enter")
    shows(page, "#said", "exists")


def test_a_camera_that_cannot_be_read_is_said_in_its_tile(
    run: Path, serve: Serve, open_page: Open, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("av", reason="PyAV is not installed")
    from rlenv_formats.lerobot.write import write_lerobot

    write_lerobot(open_source(run).table, tmp_path / "set")
    for video in tmp_path.glob("set/videos/*wrist*/**/*.mp4"):
        video.write_bytes(video.read_bytes()[:300])
    page = open_page(serve(tmp_path / "set"))
    shows(page, "#tile-0 .problem", "wrist")
    assert looks(page, "#tile-0 .pictures", 0, 0, 0.25)
    page.keyboard.press("Enter")
    shows(page, "[data-camera=wrist] figcaption", "fetch it again")
    until(lambda: looks(page, ".pane figure[data-camera=top] canvas", 0, 0), 20.0)


def test_many_episodes_are_few_tiles(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    record(tmp_path / "runs" / "long", 300, ())
    page = open_page(serve(tmp_path / "runs"))
    shows(page, "#count", "300 episodes")
    page.keyboard.press("End")
    shows(page, "#tile-299 .name", "299 ·")
    assert 0 < page.locator(".tile").count() < 60
    assert page.get_attribute("#grid", "aria-activedescendant") == "tile-299"
    assert page.get_attribute("#tile-299", "aria-setsize") == "300"
    page.keyboard.press("Shift+Home")
    shows(page, "#marks", "300 chosen")


def test_the_help_names_the_keys_and_the_command_in_both_languages(run: Path, serve: Serve, open_page: Open) -> None:
    page = open_page(serve(run), "?text=cup", viewport={"width": 380, "height": 720})
    page.keyboard.press("?")
    shows(page, "#command", "rlenv-robot data select")
    assert "like ''%cup%''" not in page.text_content("#command")
    assert "%cup%" in page.text_content("#command")
    page.keyboard.press("Escape")
    page.click("#language")
    shows(page, "#count", "2 / 4 个回合")
    assert page.get_attribute("html", "lang") == "zh"
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_a_wrong_token_is_refused_and_a_right_one_let_in(run: Path, serve: Serve, browser: Any) -> None:
    server = serve(run)
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.fill("#token", "guess")
    page.keyboard.press("Enter")
    shows(page, "#login-error", "not admitted")
    page.fill("#token", server.url.partition("#token=")[2])
    page.keyboard.press("Enter")
    page.wait_for_selector("#tile-0")
    page.close()


@needs_axe
@pytest.mark.parametrize("width", [1300, 375])
def test_axe_finds_nothing_critical_or_serious(run: Path, serve: Serve, browser: Any, width: int) -> None:
    server = serve(run)
    context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900})  # axe comes by evaluate
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_selector("#tile-0")
    for key in (None, "Enter", "b"):
        if key:
            page.keyboard.press(key)
            page.wait_for_timeout(500)
        for _ in range(2):  # both languages
            found = axe_violations(page)
            assert [(one["id"], one["impact"]) for one in found if one["impact"] in ("critical", "serious")] == []
            page.click("#language")
    context.close()
