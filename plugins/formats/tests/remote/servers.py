"""Small servers of files that behave as real ones do: with ranges or without, with a list or without, and that fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlparse


@dataclass
class FileServer:
    """The behaviour of a server, and what it was asked for.

    Attributes:
        root: the folder that is served.
        ranges: whether parts of a file can be asked for.
        lists: whether a folder has a page of links.
        cut: the number of answers with content that are still to be cut off in their middle.
        status: answers everything with this status, if it is not 0.
        asked: path and bytes of every answer with content.
    """

    root: Path
    ranges: bool = True
    lists: bool = True
    cut: int = 0
    status: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)
    url: str = ""

    def sent(self, ending: str = "") -> int:
        """Return the bytes that were sent of files with a name that ends so."""
        return sum(size for path, size in self.asked if path.endswith(ending))


Server = TypeVar("Server", bound=FileServer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _state(self) -> FileServer:
        return self.server.state  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, content: bool) -> None:
        state, path = self._state, unquote(urlparse(self.path).path)
        place = state.root / path.lstrip("/")
        if state.status or not place.exists() or (place.is_dir() and not state.lists):
            self._send(state.status or 404, b"", content)
        elif place.is_dir():
            names = [f"{one.name}/" if one.is_dir() else one.name for one in sorted(place.iterdir())]
            page = "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode()
            self._send(200, page, content, {"Content-Type": "text/html"})
        else:
            self._file(place, path, content)

    def _file(self, place: Path, path: str, content: bool) -> None:
        state, data = self._state, place.read_bytes()
        headers = {"ETag": f'"{hash(data)}"', "Content-Type": "application/octet-stream"}
        wanted, status = self.headers.get("Range"), 200
        if state.ranges:
            headers["Accept-Ranges"] = "bytes"
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                stop = min(int(last) + 1 if last else len(data), len(data))
                headers["Content-Range"] = f"bytes {first}-{stop - 1}/{len(data)}"
                data, status = data[int(first) : stop], 206
        if content and state.cut > 0 and len(data) > 1:
            state.cut -= 1
            self._send(status, data, True, headers, len(data) // 2)
            self.close_connection = True
            self.connection.close()
            return
        if content:
            state.asked.append((path, len(data)))
        self._send(status, data, content, headers)

    def _send(
        self, status: int, data: bytes, content: bool, headers: dict[str, str] | None = None, most: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if content:
            self.wfile.write(data if most is None else data[:most])
            self.wfile.flush()


class _HubHandler(_Handler):
    """The part of the Hugging Face Hub's API that a reader of public data sets uses."""

    def _answer(self, content: bool) -> None:
        state, url = self._state, urlparse(self.path)
        parts = unquote(url.path).strip("/").split("/")
        if parts[:2] == ["api", "datasets"]:
            repository = "/".join(parts[2:4])
            folder = state.root / repository
            if not folder.is_dir():
                self._json(404, {"error": "Repository not found"}, content, {"X-Error-Code": "RepoNotFound"})
            elif parts[4:5] == ["tree"]:
                self._tree(folder, "/".join(parts[6:]), parse_qs(url.query), content)
            elif parts[4:5] == ["paths-info"]:
                self._paths(folder)
            else:
                self._json(200, {"id": repository, "sha": "0" * 40, "siblings": []}, content)
            return
        if parts[:1] == ["datasets"] and parts[3:4] == ["resolve"]:
            place = state.root.joinpath(*parts[1:3], *parts[5:])
            if place.is_file():
                self._file(place, url.path, content)
                return
        self._json(404, {"error": "Entry not found"}, content, {"X-Error-Code": "EntryNotFound"})

    def do_POST(self) -> None:
        self._answer(True)

    def _paths(self, folder: Path) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        wanted = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
        wanted = [wanted] if isinstance(wanted, str) else wanted
        found = [self._entry(folder, folder / one) for one in wanted if (folder / one).exists()]
        self._json(200, found, True)

    def _tree(self, folder: Path, below: str, query: dict[str, list[str]], content: bool) -> None:
        top = folder / below
        if not top.is_dir():
            self._json(404, {"error": "Entry not found"}, content, {"X-Error-Code": "EntryNotFound"})
            return
        deep = query.get("recursive", [""])[0].lower() in ("1", "true")
        self._json(
            200, [self._entry(folder, one) for one in sorted(top.rglob("*") if deep else top.iterdir())], content
        )

    def _entry(self, folder: Path, one: Path) -> dict[str, Any]:
        path = one.relative_to(folder).as_posix()
        if one.is_dir():
            return {"type": "directory", "oid": "1" * 40, "size": 0, "path": path}
        size = one.stat().st_size
        return {"type": "file", "oid": f"{hash(one.read_bytes()) & (2**60 - 1):040x}", "size": size, "path": path}

    def _json(self, status: int, value: Any, content: bool, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), content, {"Content-Type": "application/json", **(headers or {})})


@contextmanager
def serve(state: Server, hub: bool = False, handler: type[BaseHTTPRequestHandler] | None = None) -> Iterator[Server]:
    """Serve files on this machine alone until the block ends, by a handler of its own if one is given."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler or (_HubHandler if hub else _Handler))
    server.state = state  # type: ignore[attr-defined]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
