"""Serve the page of data sets: what it asks of the index of episodes, their images, and labels."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from hal import RobotError, SourceError
from real.protocol.keys import Role
from real.protocol.text import printable
from recorder.json_data import JsonDict
from rlenv_data_browser.collection import Collection, Place
from rlenv_data_browser.drawing import DrawingProcesses
from rlenv_data_browser.tile_cache import TileCache
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.page_server import HEADERS, PageFiles, PageServer, PageSettings

__all__ = ["BrowseServer"]

_log = logging.getLogger(__name__)

_FILES = PageFiles(
    "rlenv_data_browser",
    ("index.html", "browse.css", "icon.svg", "browse.js", "grid.js", "viewer.js", "draw.js", "api.js", "words.js"),
)
_MOST_BODY = 4 << 20
"""Largest body of a request, bytes: the keys of some 20,000 episodes."""
_MAY_WRITE = (Role.OPERATE, Role.MOVE)
_PROCESSES = max(min(len(os.sched_getaffinity(0)), 4), 2)
"""Processes that draw."""
_POINTS = 800
"""Points of a curve in the view of an episode at most."""
_MOST_FRAMES = 64
"""Images that one answer has at most."""

_Ask = Callable[[Mapping[str, str], Any, Visitor], JsonDict | bytes]


class BrowseServer:
    """The page of the episodes at or below some paths.

    Args:
        paths: runs, data sets, folders of them, or saved selections, of which the selected episodes are shown.
        settings: address and access of the page.
        reading: options for reading other projects' data sets, as `rlenv_robot.open_source` takes them.
        index: the file of the index of episodes; None for the one in the user's cache.
        tiles: the folder of thumbnails and curves; None for the one in the user's cache.
        selections: the folder of saved selections.

    Attributes:
        collection: the episodes.
        port: the port on which the page is served.

    Raises:
        SourceError: a path does not exist, or nothing at the paths can be read.
        ValueError: the list of tokens is damaged.
        OSError: the address is in use.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        settings: PageSettings,
        *,
        reading: Mapping[str, object] | None = None,
        index: Path | None = None,
        tiles: Path | None = None,
        selections: Path | None = None,
    ) -> None:
        self.collection = Collection(paths, reading or {}, index, selections or Path.cwd())
        self._tiles = TileCache(tiles)
        self._drawings = DrawingProcesses(self.collection.reading, tiles, _PROCESSES)
        self._tokens = settings.open_tokens()
        self._asking = ThreadPoolExecutor(2, "rlenv-robot data browse")
        self._drawing = ThreadPoolExecutor(_PROCESSES, "rlenv-robot data browse images")
        asked, drawn = _routes_of(self._endpoint, self._asking), _routes_of(self._endpoint, self._drawing)
        routes = [
            asked("/api/about", self._about),
            asked("/api/episodes", lambda query, *_: self.collection.episodes(query)),
            asked("/api/values", lambda *_: self.collection.values()),
            asked("/api/episode", lambda query, *_: self.collection.episode(_word(query, "key"))),
            asked("/api/state", lambda *_: self.collection.state()),
            asked("/api/label", lambda _, body, visitor: self.collection.label(body, visitor.name), "POST"),
            asked("/api/undo", lambda _, body, visitor: self.collection.undo(body, visitor.name), "POST"),
            asked("/api/compute", lambda _, body, __: self.collection.compute(str(body.get("group"))), "POST"),
            asked("/api/select", lambda _, body, visitor: self.collection.save(body, visitor.name), "POST"),
            drawn("/api/tile", lambda query, *_: self._drawings.call("tile", *self._place(query))),
            drawn(
                "/api/curves",
                lambda query, *_: self._drawings.call("curves", *self.collection.place(_word(query, "key")), 800),
            ),
            drawn("/api/frames", self._frames),
        ]
        self._web = PageServer("the page of data sets", settings, self._tokens, _FILES, routes)
        self.port = self._web.port

    @property
    def url(self) -> str:
        """The address of the page; a token of this process follows after ``#``."""
        return self._web.url

    def start(self) -> BrowseServer:
        """Start serving in the background.

        Raises:
            RobotError: the certificate can't be used.
        """
        self._web.start()
        threading.Thread(target=self._tiles.trim, name="rlenv-robot data browse trim", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop serving, and end what is computed. Safe to call more than once."""
        self._drawings.close()
        self._web.close()
        self.collection.close()
        for pool in (self._asking, self._drawing):
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> BrowseServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _about(self, _: Mapping[str, str], __: Any, visitor: Visitor) -> JsonDict:
        return {**self.collection.about(), "name": visitor.name, "may_write": visitor.role in _MAY_WRITE}

    def _place(self, query: Mapping[str, str]) -> Place:
        return self.collection.place(_word(query, "key"))

    def _frames(self, query: Mapping[str, str], *_: Any) -> bytes:
        """Return images, each behind its size in 4 bytes, the most significant one first."""
        first, count, step = (_whole(query, name) for name in ("first", "count", "step"))
        numbers = [first + at * step for at in range(min(count, _MOST_FRAMES))]
        width = min(max(_whole(query, "width"), 16), 1920)
        images = self._drawings.call(
            "frames", *self.collection.place(_word(query, "key")), _word(query, "camera"), numbers, width
        )
        return b"".join(len(image).to_bytes(4, "big") + image for image in images)

    # -- HTTP ----------------------------------------------------------------------------------------------------

    def _endpoint(self, ask: _Ask, pool: ThreadPoolExecutor, *, writes: bool) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            visitor = self._web.visitor(request)
            if visitor is None:
                await asyncio.sleep(0.2)
                return _error("no valid token", 401)
            if visitor.role is Role.STOP or (writes and visitor.role not in _MAY_WRITE):
                return _error(f"{visitor.name} has the role {visitor.role.value} here, which does not allow this", 403)
            origin = request.headers.get("origin")
            if (writes or origin is not None) and not self._web.origins.trusts(origin):
                _log.warning("refused a page of another origin: %s", printable(str(origin), 200))
                return _error("a page of another origin may not ask", 403)
            try:
                body = await _body(request) if writes else None
                loop = asyncio.get_running_loop()
                begun_s = time.perf_counter()
                result = await loop.run_in_executor(pool, ask, request.query_params, body, visitor)
                return _answer(result, time.perf_counter() - begun_s)
            except ClientDisconnect:
                return _error("the page has gone", 400)
            except (RobotError, ValueError, OSError) as error:
                return _error(printable(str(error), 1000), 400)
            except Exception:
                _log.exception("a request failed: %s", request.url.path)
                return _error("the server met an unexpected error; its log says which", 500)

        return answer


def _routes_of(endpoint: Callable[..., Callable[[Request], Any]], pool: ThreadPoolExecutor) -> Callable[..., Route]:
    """Return a function that makes a route of a path, a question and a method, which a pool's thread answers."""

    def route(path: str, ask: _Ask, method: str = "GET") -> Route:
        return Route(path, endpoint(ask, pool, writes=method == "POST"), methods=[method])

    return route


async def _body(request: Request) -> Any:
    """Return the JSON object that a request has.

    Raises:
        SourceError: it is too long, or not such an object.
    """
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MOST_BODY:
            raise SourceError(f"a request may have at most {_MOST_BODY >> 20} MiB; choose fewer episodes")
    try:
        body = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"the request is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise SourceError("the request is not a JSON object")
    return body


def _word(query: Mapping[str, str], name: str) -> str:
    if name not in query:
        raise SourceError(f"the request lacks {name}")
    return query[name]


def _whole(query: Mapping[str, str], name: str) -> int:
    text = _word(query, name)
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise SourceError(f"{name} is {text!r:.50}, expected a whole number")
    return int(text)


def _answer(result: JsonDict | bytes, seconds: float) -> Response:
    headers = {**HEADERS, "cache-control": "no-store", "server-timing": f"work;dur={1e3 * seconds:.1f}"}
    if isinstance(result, bytes):
        return Response(result, headers=headers, media_type="application/octet-stream")
    return Response(json.dumps(result, separators=(",", ":")), headers=headers, media_type="application/json")


def _error(text: str, status: int) -> Response:
    headers = {**HEADERS, "cache-control": "no-store"}
    return Response(json.dumps({"error": text}), status, headers=headers, media_type="application/json")
