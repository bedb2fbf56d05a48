"""Serve the operator's page and its WebSocket. Each page receives the newest state as fast as it can process it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from hal import RobotError
from real.control.limits import RateLimiter
from real.protocol.access import may
from real.protocol.text import printable
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.acts import ActLog, ActRecord, Acts
from rlenv_operate.console.comparisons import Comparisons, ShownPair, compare
from rlenv_operate.console.loop import Loop, results_text
from rlenv_operate.console.messages import (
    MAX_BYTES,
    Act,
    Choice,
    Compare,
    Drive,
    Job,
    Login,
    MessageError,
    Name,
    Replay,
    Results,
    Seen,
    parse,
)
from rlenv_operate.console.mover import Mover, MoverSettings
from rlenv_operate.console.page_server import POLICY_VIOLATION, PageFiles, PageServer, PageSettings
from rlenv_operate.console.questions import FixtureSocket, QuestionBox
from rlenv_operate.console.replay import Replays
from rlenv_operate.console.scene import Scene
from rlenv_operate.console.view import (
    acts_text,
    describe_robot,
    episodes_text,
    image_frame,
    question_text,
    replay_text,
    state_text,
)
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.robot_feed import RobotFeed

__all__ = ["ConsoleServer", "ConsoleSettings"]

_log = logging.getLogger(__name__)

_MOST_PAGES, _MOST_PAGES_OF_ONE = 64, 16
_LOGIN_S = 5.0
_MESSAGES_PER_S, _BURST = 120.0, 240
_WINDOW = 6
"""States and images on their way to a page at most: a page that is slow gets fewer, and never old ones."""
_MOST_UNSENT = 64
"""Answers that wait for a page at most; one that reads nothing is cut off."""

_PULSE_S = 0.5
"""Longest time between two states that a page is sent, in seconds, also where nothing is new."""

_KINDS = ("robot", "state", "question", "episodes", "acts", "loop")
"""Messages of which a page is sent the newest, in this order."""

_SCRIPTS = ("words.js", "words-zh.js", "drawing.js", "drive.js", "recorded.js", "loop.js", "console.js")
_FILES = PageFiles("rlenv_operate.console", ("index.html", *_SCRIPTS, "console.css", "icon.svg"))
_TRY_LATER = 1013
_REFUSED = 4401
"""Code with which the socket of a page without a valid token is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings(PageSettings):
    """The settings of a console, besides the address of its page and the access to it.

    Attributes:
        address: the address of the robot's server.
        keys: folder of this machine's keys.
        telemetry: address of the telemetry, if the server does not announce it.
        fixture: address at which the robot's server asks for resets; None if it does not ask here.
        acts: file of the log of acts; None keeps it in memory.
        runs: folder of recorded runs that pages may replay and compare, or None.
        mover: the mover of teleoperation.
        folder: folder of the flow from a robot to a better policy, whose commands pages may start; None for none.
    """

    address: str
    keys: str | Path | None = None
    telemetry: str | None = None
    fixture: str | None = None
    acts: str | Path | None = None
    runs: str | Path | None = None
    mover: MoverSettings = field(default_factory=MoverSettings)
    folder: str | Path | None = None


@dataclass(slots=True, eq=False)
class _Page:
    """One open page: its visitor, and what waits to be sent to it."""

    socket: WebSocket
    visitor: Visitor
    news: asyncio.Event
    cameras: frozenset[str] = frozenset()
    answers: deque[str] = field(default_factory=deque)
    fresh: set[str] = field(default_factory=set)
    images: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    seen: int = 0
    name: str = ""
    replays: asyncio.Task[None] | None = None
    compares: asyncio.Task[None] | None = None
    shown: ShownPair | None = None

    @property
    def full(self) -> bool:
        """Whether as many states and images are on their way as may be."""
        return self.sent - self.seen >= _WINDOW


class ConsoleServer:
    """The console of one served robot.

    Args:
        settings: the settings of the console.

    Attributes:
        tokens: the tokens of its visitors.

    Raises:
        ValueError: a setting is not allowed, or the list of tokens is damaged.
        WireError: the robot's address is invalid, or is another machine's and there are no keys.
        OSError: the console's address is in use, or the log of acts can't be written.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.tokens = settings.open_tokens()
        self._feed = RobotFeed(settings.address, settings.keys, settings.telemetry)
        self._questions = QuestionBox()
        self._mover = Mover(
            settings.address, settings.keys, settings.mover, self._questions, self.tokens.current, self._robot_state
        )
        self._log = ActLog(settings.acts)
        self._steps = None if settings.folder is None else Loop(Path(settings.folder), settings.address, self._mover)
        self._acts = Acts(settings.address, settings.keys, self._mover, self._questions, self._log, loop=self._steps)
        self._replays = None if settings.runs is None else Replays(settings.runs)
        self._comparisons = None if settings.runs is None else Comparisons(settings.runs)
        self._fixture = None if settings.fixture is None else FixtureSocket(settings.fixture, self._questions)
        self._web = PageServer(
            "the console", settings, self.tokens, _FILES, [WebSocketRoute("/ws", self._visit)],
            ws_max_size=MAX_BYTES, ws_max_queue=16, ws_ping_interval=5.0, ws_ping_timeout=10.0,
            ws_per_message_deflate=False, ws="websockets-sansio",
        )  # fmt: skip
        self.port = self._web.port
        self._pages: set[_Page] = set()
        self._texts: dict[str, str] = {}
        self._described: tuple[object, Scene | None] = (None, None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ordinary = ThreadPoolExecutor(16, "rlenv-robot operate console act")
        self._replayer = ThreadPoolExecutor(1, "rlenv-robot operate console replay")
        self._stops = ThreadPoolExecutor(8, "rlenv-robot operate console stop")

    @property
    def url(self) -> str:
        """The address of the page; a token of this process follows after ``#``."""
        return self._web.url

    def start(self) -> ConsoleServer:
        """Start serving in the background.

        Raises:
            RobotError: the certificate can't be used.
        """
        self._web.start()
        if self._fixture is not None:
            self._fixture.start()
        self._mover.start()
        self._acts.start()
        self._questions.on_change = partial(self._post, "question")
        self._mover.on_change = partial(self._post, "state")
        if self._steps is not None:
            self._steps.jobs.on_change = partial(self._post, "loop")
            self._steps.jobs.begin()
        self._feed.start(self._post)
        return self

    def close(self) -> None:
        """End all episodes of the console, and close it. Safe to call more than once."""
        self._mover.close()
        if self._steps is not None:
            self._steps.jobs.close()
        self._feed.close()
        self._acts.close()
        if self._fixture is not None:
            self._fixture.close()
        self._web.close()
        self._ordinary.shutdown(wait=False)
        self._replayer.shutdown(wait=False, cancel_futures=True)
        self._stops.shutdown(wait=False)
        self._log.close()

    def __enter__(self) -> ConsoleServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _robot_state(self) -> tuple[str, float]:
        """Return the robot's state by the newest telemetry, and when that came; empty where it is not followed."""
        look = self._feed.look
        return ("", 0.0) if look.snapshot is None or look.problem else (look.snapshot.state, look.came_s)

    # -- news: from threads to pages ----------------------------------------------------------------------

    def _post(self, kind: str) -> None:
        """Take up news of the feed, the mover or the questions; from any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._publish, kind)

    def _publish(self, kind: str) -> None:
        """Make each message once for all pages, and wake them; on the loop."""
        if not self._pages:
            return
        if kind == "state":
            self._publish_state()
        elif kind == "episodes":
            self._texts["episodes"] = episodes_text(self._feed.episodes)
        elif kind == "question":
            self._texts["question"] = question_text(self._questions.pending, self._questions.chosen_verdict)
        elif kind == "acts":
            self._texts["acts"] = acts_text(self._log.recent)
        elif kind == "loop" and self._steps is not None:
            self._texts["loop"] = self._steps.text()
        for page in self._pages:
            page.fresh.add(kind)
            page.news.set()

    def _publish_state(self) -> None:
        look, mover = self._feed.look, self._mover.state()
        if look.spec is not None and self._described[0] != (look.spec, look.cameras):
            scene = _scene(look.spec.name)
            self._described = (look.spec, look.cameras), scene
            self._texts["robot"] = json.dumps(
                {"t": "robot", "robot": describe_robot(look.spec, look.cameras, scene)}, separators=(",", ":")
            )
            for page in self._pages:
                page.fresh.add("robot")
        now_s = time.monotonic()
        self._texts["state"] = state_text(look, self._described[1], mover, now_s)
        self._texts["restricted"] = state_text(look, None, mover, now_s, restricted=True)

    # -- the web socket -----------------------------------------------------------------------------------

    async def _visit(self, web: WebSocket) -> None:
        self._loop = asyncio.get_running_loop()
        if not self._web.origins.trusts(web.headers.get("origin")):
            _log.warning("refused a page of another origin: %s", printable(str(web.headers.get("origin")), 200))
            await web.close(POLICY_VIOLATION)
            return
        await web.accept()
        with suppress(WebSocketDisconnect, RuntimeError):  # RuntimeError: starlette's, on a socket that has closed
            visitor = await self._admit(web)
            if visitor is not None:
                await self._serve(_Page(web, visitor, asyncio.Event()))

    async def _admit(self, web: WebSocket) -> Visitor | None:
        """Read the first message, which has the token; close the socket of a page without a valid one."""
        try:
            first = parse(await asyncio.wait_for(web.receive_text(), _LOGIN_S))
        except (TimeoutError, MessageError, KeyError):
            first = None
        visitor = self.tokens.admit(first.token) if isinstance(first, Login) else None
        if visitor is None:
            await asyncio.sleep(0.2)
            await web.close(_REFUSED, "no valid token")
            return None
        own_pages = sum(page.visitor.is_same(visitor) for page in self._pages)
        if len(self._pages) >= _MOST_PAGES or own_pages >= _MOST_PAGES_OF_ONE:
            await web.close(_TRY_LATER, "too many pages are open")
            return None
        self._web.strangers.admit(web.scope.get("client"))
        return visitor

    async def _serve(self, page: _Page) -> None:
        self._mover.come(page.visitor)
        self._pages.add(page)
        page.answers.append(self._welcome(page))
        page.fresh.add("robot")
        for kind in _KINDS[1:]:
            self._publish(kind)
        page.news.set()
        sender = asyncio.create_task(self._send(page))
        try:
            await self._receive(page)
        finally:
            self._pages.discard(page)
            if not any(other.visitor.is_same(page.visitor) for other in self._pages):
                self._mover.leave(page.visitor)
            sender.cancel()

    def _welcome(self, page: _Page) -> str:
        """Return who the page's visitor is; a person with the token of this process is asked for a name."""
        if page.name:
            page.visitor = replace(page.visitor, name=page.name)
        visitor, asks_name = page.visitor, self.tokens.own is not None and not page.name
        return json.dumps(
            {"t": "welcome", "name": visitor.name, "role": visitor.role.value, "id": visitor.id, "asks_name": asks_name}
        )

    async def _receive(self, page: _Page) -> None:
        """Take a page's messages until it goes, or sends what no page of ours does."""
        limiter, tasks = RateLimiter(_MESSAGES_PER_S, _BURST), set[asyncio.Task[None]]()
        while True:
            try:
                message = parse(await page.socket.receive_text())
            except (MessageError, KeyError) as error:
                await page.socket.close(POLICY_VIOLATION, printable(str(error), 100))
                return
            flood = limiter.spent
            limiter.take()
            if flood and not (isinstance(message, Act) and message.act == "stop"):
                await page.socket.close(POLICY_VIOLATION, "too many messages")
                return
            if not await self._still_admitted(page):
                return
            if isinstance(message, Drive):
                with suppress(ValueError):  # as of a page that has not heard yet that its episode is over
                    self._mover.drive(page.visitor, message)
            elif isinstance(message, Seen):
                page.seen = max(page.seen, min(message.n, page.sent))
                page.news.set()
            elif isinstance(message, Choice) and may(page.visitor.role, "see"):
                page.cameras = frozenset(message.cameras)
                page.news.set()
            elif isinstance(message, Act | Job):
                if len(tasks) >= _MOST_UNSENT and not (isinstance(message, Act) and message.act == "stop"):
                    await page.socket.close(POLICY_VIOLATION, "too many acts wait")
                    return
                task = asyncio.create_task(self._carry_out(page, message))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            elif isinstance(message, Name) and self.tokens.own is not None:
                page.name = printable(message.name, 40)
                page.answers.append(self._welcome(page))
                page.news.set()
            elif isinstance(message, Replay | Results) and may(page.visitor.role, "replay") and not page.replays:
                page.replays = asyncio.create_task(self._replay(page, message))
            elif isinstance(message, Compare) and not page.compares:
                page.compares = asyncio.create_task(self._compare(page, message))

    async def _still_admitted(self, page: _Page) -> bool:
        """Take up the rights of a page's token as they are now; close the socket where it has none."""
        visitor = self.tokens.current(page.visitor)
        if visitor is None:
            await page.socket.close(_REFUSED, "the token has lost its rights")
            return False
        changed = visitor.role is not page.visitor.role
        page.visitor = replace(visitor, name=page.name or visitor.name)
        if changed:
            page.answers.append(self._welcome(page))
            page.fresh.update(_KINDS)
            page.cameras = page.cameras if may(visitor.role, "see") else frozenset()
            page.news.set()
        return True

    async def _carry_out(self, page: _Page, act: Act | Job) -> None:
        """Carry out an act on a thread; stops have threads of their own."""
        pool: Executor = self._ordinary
        carry_out: Callable[[Visitor], ActRecord]
        if isinstance(act, Act):
            pool = self._stops if act.act == "stop" else pool
            carry_out = partial(self._acts.carry_out, act)
        else:
            carry_out = partial(self._acts.carry_out_job, act)
        record = await asyncio.get_running_loop().run_in_executor(pool, carry_out, page.visitor)
        answer = {"t": "outcome", "id": act.id, "act": record.act, "ok": record.ok, "text": record.outcome}
        page.answers.append(json.dumps(answer))
        page.news.set()
        self._publish("acts")
        if isinstance(act, Job):
            self._publish("loop")

    async def _replay(self, page: _Page, question: Replay | Results) -> None:
        """Answer a question for recorded episodes, one at a time for all pages, on a thread of its own."""
        read = partial(results_text, self._steps)
        if isinstance(question, Replay):
            read = partial(replay_text, self._replays, question.episode, question.simulated, question.slot)
        answer = await asyncio.get_running_loop().run_in_executor(self._replayer, read)
        page.answers.append(answer)
        page.replays = None
        page.news.set()

    async def _compare(self, page: _Page, question: Compare) -> None:
        """Take a person's answer on two episodes, and ask for the next two, on the thread of the replays."""
        answer, page.shown = await asyncio.get_running_loop().run_in_executor(
            self._replayer, compare, self._comparisons, question, page.shown, page.visitor, self._log
        )
        page.answers.append(answer)
        page.compares = None
        page.news.set()
        if question.choice is not None:
            self._publish("acts")

    async def _send(self, page: _Page) -> None:
        """Send the newest of everything, one message at a time: a page that reads slowly gets fewer messages."""
        with suppress(WebSocketDisconnect, RuntimeError):
            while await self._still_admitted(page):
                try:
                    await asyncio.wait_for(page.news.wait(), _PULSE_S)
                except TimeoutError:
                    self._publish("state")  # nothing is new, and what is shown is older now
                page.news.clear()
                while page.answers:
                    await page.socket.send_text(page.answers.popleft())
                may_watch = may(page.visitor.role, "watch")
                for kind in _KINDS if may_watch else ("state",):
                    text = self._texts.get(kind if may_watch else "restricted")
                    if kind in page.fresh and text is not None and not (kind == "state" and page.full):
                        page.fresh.discard(kind)
                        page.sent += kind == "state"
                        await page.socket.send_text(text)
                if may_watch:
                    await self._send_images(page)

    async def _send_images(self, page: _Page) -> None:
        for name in page.cameras:
            image = self._feed.images.get(name)
            if image is not None and page.images.get(name) != image.stamp_ns and not page.full:
                page.images[name] = image.stamp_ns
                page.sent += 1
                await page.socket.send_bytes(image_frame(name, image))


def _scene(robot: str) -> Scene | None:
    """Return the solids of a robot that has a simulation here, or None."""
    try:
        return Scene(find_robot_model(robot).make_sim_model())
    except (ValueError, RobotError) as error:
        _log.info("the robot can't be drawn: %s", error)
        return None
