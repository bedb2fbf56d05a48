"""From a robot to a better policy in the page alone: each step in a browser, and axe-core in each state."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_operate.console.mover import MoverSettings
from tests.browser import IN_BROWSER, axe_violations, chromium, holds, needs_axe, shows
from tests.fakes import until

pytest.importorskip("playwright.sync_api", reason="no browser tests: pip install playwright")
server = pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
pytestmark = IN_BROWSER

LONG_S = 120.0
AXE_RULES = '{"label-content-name-mismatch": {enabled: true}, "target-size": {enabled: true}}'
"""Rules besides axe-core's own: what one sees is in the name, as voice control needs it, and is large enough."""
WIDTHS = {"wide": 1280, "phone": 390}
FOREIGN_TEXTS = """() => {
  const chinese = document.documentElement.lang === "zh", found = [];
  const look = (element, text) => {
    if (!text || !element.checkVisibility() || element.closest("[translate=no], [lang]:not(html), pre, code")) return;
    if (chinese ? /[A-Za-z]{3}/.test(text) && !/[\\u4e00-\\u9fff]/.test(text) : /[\\u4e00-\\u9fff]/.test(text)) {
      found.push(`${element.closest("[id]").id}: ${text}`);
    }
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) look(node.parentElement, node.textContent.trim());
  for (const element of document.querySelectorAll("[aria-label]")) look(element, element.getAttribute("aria-label"));
  return found;
}"""
"""Return the visible texts and labels in the other language than the page's; names of joints, policies and such are
marked as not to be translated."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium("--use-angle=swiftshader", "--enable-unsafe-swiftshader") as browser:
        yield browser


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with five recorded episodes, so that a retraining needs few of a policy's."""
    lab = tmp_path / "lab"
    with rr.make("so101-reach", record=lab / "runs", info={"policy": "script"}) as env:
        rng = np.random.default_rng(0)
        for seed in range(5):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                action = env.action.sample(rng)
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    return lab


@pytest.fixture
def console(lab: Path) -> Iterator[Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = server.ConsoleSettings(
        address=f"tcp://127.0.0.1:{port}", port=0, folder=lab, runs=lab / "runs", acts=lab / "acts.jsonl",
        mover=MoverSettings(record=lab / "runs"),
    )  # fmt: skip
    with server.ConsoleServer(settings) as console:
        yield console


@pytest.fixture
def open_page(browser: Any, console: Any) -> Iterator[Any]:
    """Open the page; at the test's end it is closed, since a page that is left open goes on drawing."""
    contexts = []

    def opened(**options: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": WIDTHS["wide"], "height": 900}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(LONG_S * 1e3)
        page.goto(console.url)
        return page

    yield opened
    for context in contexts:
        context.close()


def walk(
    page: Any,
    look: Callable[[str], None] | None = None,
    verdicts: tuple[str, ...] = ("success", "success", "failure"),
) -> None:
    """Take all steps, and call ``look`` with the name of each state; a training that is looked at is a long one."""
    long, look = look is not None, look or (lambda state: None)

    def job(step: str) -> str:
        return str(page.evaluate(f"loop.job('{step}')?.state || ''"))

    page.wait_for_selector("#loop:visible")
    look("no robot")
    assert page.is_hidden("#stale"), "that no robot was chosen yet is no alarm"
    page.select_option("#robot-task", "so101-reach")
    page.click("[data-job-do='robot start']")
    page.wait_for_selector("body[data-live=true]")
    holds(page, "Boolean(state && state.live)", LONG_S)
    look("disarmed")
    page.click("[data-step=run]")
    assert page.input_value("#run-policy") == "zoo:so101-reach"
    shows(page, "#run-about", page.evaluate("t('zoo_about')"))
    look("ready-made")
    if not long:  # a policy is run and judged before any training
        page.fill("#run-episodes", "1")
        page.click("#run-start")
        page.click("[data-step=judge]")
        holds(page, "Boolean(question)", LONG_S)
        page.click(f"#step-judge [data-do={verdicts[0]}]")
        holds(page, "state.mover.phase === 'idle'", LONG_S)
    page.click("[data-step=calibrate]")
    look("calibrate")
    page.click("[data-step=record]")
    page.click("#step-record [data-do=arm]")
    page.wait_for_selector("#state[data-s=ready]")
    assert page.evaluate("document.activeElement.id") == "pad"
    shows(page, "#goal", "target_position")
    look("armed")
    page.focus("#pad")
    page.keyboard.down("Space")
    page.keyboard.down("KeyQ")
    page.wait_for_selector("#state[data-s=running]")
    look("recording")
    page.keyboard.up("KeyQ")
    page.keyboard.up("Space")
    page.click(f"#step-record [data-do={verdicts[0]}]")
    holds(page, "state.mover.phase === 'idle'", LONG_S)
    page.click("[data-step=train]")
    if long:
        page.select_option("#train-method", "evolution")
    method = page.input_value("#train-method")  # the page's own choice
    page.fill("#train-steps", "100000000" if long else {"evolution": "40000", "ppo": "7680"}[method])
    page.fill("#train-name", "first")
    page.click("[data-job-do='train start']")
    holds(page, "(loop.job('train')?.curve || []).length > 1", LONG_S)
    look("training")
    page.click("[data-job-do='train end']")
    holds(page, "loop.job('train')?.state === 'stopped'", LONG_S)
    look("interrupted")
    curve = page.evaluate("loop.job('train').curve")
    page.reload()  # jobs and what became of them are the console's, not the page's
    page.wait_for_selector("#loop:visible")
    page.click("[data-step=train]")
    if long:
        page.select_option("#train-method", "evolution")
        page.fill("#train-steps", "10000")
        page.fill("#train-name", "first")
    page.click("[data-job-do='train start']" if long else "[data-job-do='train resume']")
    holds(page, "loop.job('train')?.state === 'running'", LONG_S)
    holds(page, "loop.job('train')?.state === 'done'", LONG_S)
    if not long:
        resumed = page.evaluate("loop.job('train').curve")
        assert resumed[: len(curve)] == curve, "the learning curve goes on"
        assert len(resumed) > len(curve)
    look("trained")
    page.click("[data-step=run]")
    page.fill("#run-episodes", "2")
    page.click("#run-start")
    page.wait_for_selector("#state[data-s=running]")
    shows(page, "#clutch", page.evaluate("t('policy_moves')"))
    look("running")
    page.click("[data-step=judge]")
    for verdict in verdicts[1:]:
        holds(page, "Boolean(question)", LONG_S)
        look("asking")
        if verdict == "discard":  # without a drawing of the simulated robot nobody can say more
            assert page.locator("[data-act=success]:enabled, [data-do=failure]:enabled").count() == 0
            assert page.evaluate("t('blind')") in page.text_content("#judge-now")
        page.click(f"#step-judge [data-do={verdict}]")
        holds(page, "!question", LONG_S)
    holds(page, "state.mover.phase === 'idle'", LONG_S)
    page.click("[data-step=retrain]")
    page.fill("#retrain-name", "second")
    page.fill("#retrain-steps", "20000")
    page.click("[data-job-do='retrain start']")
    holds(page, "loop.job('retrain')?.state === 'done'", LONG_S)
    look("retrained")
    page.click("[data-step=compare]")
    shows(page, "#results", "first.npz")
    page.click("#to-compare")
    page.wait_for_selector("[data-choice=skip]:enabled")
    look("comparing")
    page.click("#stop")
    page.wait_for_selector("#state[data-s=stopped]")
    look("stopped")


@pytest.mark.timeout(400)
def test_the_whole_loop_is_walked_in_the_page(open_page: Any, console: Any, lab: Path) -> None:
    troubles = list[str]()
    page = open_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.fill("#person", "Ada")
    page.click("#name-form button")
    shows(page, "#me", "Ada")
    walk(page)
    assert troubles == []
    assert sorted(path.name for path in (lab / "policies").glob("*.npz")) == ["first.npz", "second.npz"]
    infos = [dict(info) for info in rr.open_source(str(lab / "runs")).table.episodes]
    assert [info["verdict"] for info in infos if info["policy"] == "zoo:so101-reach"] == ["success"]
    assert [info["verdict"] for info in infos if info["policy"] == "first.npz"] == ["success", "failure"]
    assert [info["operator"] for info in infos if info["policy"] in ("teleoperation", "first.npz")] == ["Ada"] * 3
    until(lambda: '"act": "stop"' in (lab / "acts.jsonl").read_text())  # the robot stops before its act is logged
    acts = [json.loads(line) for line in (lab / "acts.jsonl").read_text().splitlines()]
    assert {act["name"] for act in acts} == {"Ada"}
    assert [act["act"] for act in acts if act["ok"]] == [
        "start", "run", "success", "arm", "success", "start", "end", "start", "run", "success", "failure", "start",
        "stop",
    ]  # fmt: skip
    assert acts[-2]["text"].startswith("rlenv-robot retrain runs --policy policies/first.npz --out policies/second.npz")
    assert all("(console)" in who for who in page.locator("#episode-table td:nth-child(4)").all_text_contents())
    console.close()
    assert all(job["state"] != "running" for job in console._steps.jobs.view())


def test_the_header_of_a_phone_is_low_with_a_large_stop(open_page: Any) -> None:
    page = open_page()
    page.wait_for_selector("#loop:visible")
    page.fill("#person", "Ada")
    page.click("#name-form button")
    shows(page, "#me", "Ada")
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 844})
    for _ in range(2):  # both languages
        assert page.locator("header").bounding_box()["height"] <= 130
        box = page.locator("#stop").bounding_box()
        assert box["width"] >= 180
        assert box["height"] >= 54
        page.click("#language")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.locator("#stop").bounding_box()["y"] >= 0
    banner = "put($('stale'), 'old'); $('stale').hidden = false; $('stale').getBoundingClientRect().top"
    assert page.evaluate(banner) > 54  # below Stop, not behind it


def test_every_control_is_reached_by_tab_and_shows_its_focus(open_page: Any) -> None:
    page = open_page()
    page.wait_for_selector("#loop:visible")
    assert page.get_by_role("button", name="STOP").get_attribute("id") == "stop"  # as voice control finds it
    ready = """() => [...document.querySelectorAll("button, input, select, summary, [tabindex]")]
      .filter((one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility())
      .map((one) => one.id || one.dataset.step || one.dataset.jobDo || one.dataset.act || one.textContent)"""
    here = """() => { const one = document.activeElement, style = getComputedStyle(one);
      return [one.id || one.dataset.step || one.dataset.jobDo || one.dataset.act || one.textContent,
        style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2]; }"""
    page.evaluate("document.activeElement.blur()")
    expected, reached = page.evaluate(ready), list[str]()
    for _ in expected:
        page.keyboard.press("Tab")
        name, is_shown = page.evaluate(here)
        assert is_shown, name
        reached.append(name)
    assert reached[0] == "stop"
    assert sorted(reached) == sorted(expected)
    page.focus("[data-step=train]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#step-train:visible")
    page.focus("#train-name")
    page.keyboard.press("Escape")  # stops, also where no robot is: the page says that none confirmed
    shows(page, "#notice", "NOT confirmed")


@needs_axe
@pytest.mark.timeout(600)
@pytest.mark.parametrize("webgl", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_axe_finds_nothing_in_any_state_width_and_language(open_page: Any, console: Any, webgl: bool) -> None:
    page = open_page(bypass_csp=True)  # axe comes by evaluate
    if not webgl:
        page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null;")
        page.reload()
    found, foreign = dict[str, list[str]](), set[str]()

    def look(state: str) -> None:
        focused = page.evaluate("document.activeElement.id")
        # Each width in one language with WebGL, and in the other one without it, where --soak walks again.
        for language, (name, width) in zip(("en", "zh"), list(WIDTHS.items())[:: 1 if webgl else -1], strict=True):
            page.set_viewport_size({"width": width, "height": 900})
            violations = axe_violations(page, AXE_RULES)
            if violations:
                found[f"{state}, {language}, {name}"] = [
                    f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}" for one in violations
                ]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (state, language, name)
            foreign.update(f"{state}, {language}, {text}" for text in page.evaluate(FOREIGN_TEXTS))
            page.evaluate("document.querySelector('#language').click()")
        page.set_viewport_size({"width": 1280, "height": 900})
        if focused:
            page.evaluate(f"document.getElementById('{focused}').focus()")

    verdicts = ("success", "success", "failure") if webgl else ("discard",) * 3
    walk(page, look, verdicts)
    page.goto(f"http://127.0.0.1:{console.port}/nowhere")  # leaves the page
    page.evaluate("sessionStorage.clear()")
    page.goto(f"http://127.0.0.1:{console.port}/")
    page.wait_for_selector("#login:visible")
    look("signed out")
    assert found == {}, sorted({rule for rules in found.values() for rule in rules})
    assert foreign == set(), "after a switch of language"
