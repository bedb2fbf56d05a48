"""Serve environments on OpenEnv's wire: JSON over WebSocket and HTTP, made from their specs.

A session is a WebSocket connection to ``/ws`` with an environment of its own; all HTTP requests share one more. The
messages are those of openenv-core 0.3: ``{"type": "reset" | "step" | "state" | "close", "data": {...}}``, answered by
``{"type": "observation", "data": {observation, reward, done}}``, ``{"type": "state", ...}`` or
``{"type": "error", "data": {message, code}}``. OpenEnv's wire has no place for ``truncated`` and information, so the
observation carries both.

The wire has no authentication: the server listens on this machine alone, and refuses pages of other origins.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hal import EpisodeError, RobotError
from hal.field import JsonDict
from rlenv_language.openenv.websocket import WebSocketError, accept_key, frame, read_message
from rlenv_robot.adapters.json_schema import protocol_schema
from rlenv_robot.data.chats import decode, encode
from rlenv_robot.env import Environment
from rlenv_robot.tables import ObservationTable, Options

__all__ = ["OpenEnvServer"]

_LOG = logging.getLogger(__name__)

_MOST_BYTES = 8 << 20
_MOST_HEADER = 1 << 14
_WAIT_S = 10.0
_IDLE_S = 30.0
"""Seconds that a client may take for an HTTP request."""

_LOCAL = ("127.0.0.1", "localhost", "::1")
_CLOSE, _TEXT = 0x8, 0x1
_STATUS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
           413: "Content Too Large", 422: "Unprocessable Content", 500: "Internal Server Error"}  # fmt: skip
_BESIDE = {"seed": int, "episode_id": str}


class _Refused(Exception):
    """A request that is answered by an error.

    Attributes:
        code: one of openenv-core's ``WSErrorCode``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _plain(value: Any) -> Any:
    """Return a value of ``extra_info`` as plain data that JSON can hold; what it can't hold becomes its text."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


class _Session:
    """One environment and its episodes. Calls come one at a time, all in one thread."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._env: Environment | None = None
        self._table: ObservationTable | None = None
        self._episode_id: str | None = None
        self._steps = 0

    @property
    def env(self) -> Environment:
        """The environment, made when it is first needed."""
        if self._env is None:
            self._env = self._make()
        return self._env

    def reset(self, data: Any) -> JsonDict:
        """Begin an episode."""
        options = dict(_mapping(data, "reset"))
        for key, kind in _BESIDE.items():
            if options.get(key) is not None and (not isinstance(options[key], kind) or isinstance(options[key], bool)):
                raise _Refused("VALIDATION_ERROR", f"{key} is {options[key]!r:.80}, expected a {kind.__name__}")
        episode_id = options.pop("episode_id", None)
        given: Options = {key: value for key, value in options.items() if value is not None}
        try:
            self._table = self.env.reset(given)
        except ValueError as error:
            raise _Refused("VALIDATION_ERROR", str(error)) from error
        self._episode_id, self._steps = episode_id, 0
        return self._answer(self._table, None)

    def step(self, data: Any) -> JsonDict:
        """Carry out an action."""
        table = self._table
        if table is None:
            raise _Refused("EXECUTION_ERROR", "step before reset: send a reset first")
        action = {key: value for key, value in _mapping(data, "step").items() if key != "metadata"}
        spec = self.env.action
        for name in spec.names:
            if spec[name].is_text and not spec[name].shape and isinstance(action.get(name), str):
                try:
                    action[name] = encode(action[name], spec[name])
                except ValueError as error:
                    raise _Refused("VALIDATION_ERROR", str(error)) from error
        request = {"env_id": self.env.env_id, "frame_no": table["frame_no"], "action": action}
        self._table, reward = self.env.step(request)
        self._steps += self._table["frame_no"] != table["frame_no"]
        return self._answer(self._table, reward["reward"])

    def state(self) -> JsonDict:
        """Return the state of the session."""
        return {"episode_id": self._episode_id, "step_count": self._steps}

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()

    def _answer(self, table: ObservationTable, reward: Any) -> JsonDict:
        spec = self.env.observation
        observation: JsonDict = {
            name: decode(value) if spec[name].is_text and not spec[name].shape else value.tolist()
            for name, value in table["observation"].items()
        }
        observation |= {
            "terminated": bool(table["terminated"]),
            "truncated": bool(table["truncated"]),
            "frame_no": table["frame_no"],
            "env_id": table["env_id"],
            "info": _plain(table.get("extra_info", {})),
        }
        if isinstance(reward, Mapping):  # several agents; the wire's own reward is one number
            observation["rewards"] = _plain(reward)
            reward = float(sum(reward.values()))
        done = bool(table["terminated"] or table["truncated"])
        return {"observation": observation, "reward": _plain(reward), "done": done}

    def schema(self) -> JsonDict:
        """Return the JSON schemas of action, observation and state."""
        tables = protocol_schema(self.env)["$defs"]
        action, observation = (
            tables[table]["properties"][key] for table, key in (("table_2", "action"), ("table_1", "observation"))
        )
        for spec, schema in ((self.env.action, action), (self.env.observation, observation)):
            for name in spec.names:
                if spec[name].is_text and not spec[name].shape:
                    schema["properties"][name] = {"type": "string", "description": spec[name].meaning}
        beside = {"terminated": {"type": "boolean"}, "truncated": {"type": "boolean"}, "frame_no": {"type": "integer"},
                  "env_id": {"type": "string"}, "info": tables["table_1"]["properties"]["extra_info"]}  # fmt: skip
        observation = {**observation, "properties": {**observation["properties"], **beside}}
        state = {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer", "minimum": 0}}
        return {"action": action, "observation": observation, "state": {"type": "object", "properties": state}}


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise _Refused("VALIDATION_ERROR", f"the data of {what} are a {type(data).__name__}, expected an object")
    return data


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class OpenEnvServer:
    """Serve environments to the clients of OpenEnv, on this machine alone.

    Args:
        make: returns a new environment; called once for each session.
        port: of ``127.0.0.1``; 0 takes a free one.
        sessions: WebSocket sessions at a time, each with its own environment; 1 for a robot.

    Attributes:
        url: such as ``http://127.0.0.1:8000``, once it is started.

    Raises:
        ValueError: sessions is not at least 1.
    """

    def __init__(self, make: Callable[[], Environment], port: int = 0, sessions: int = 8) -> None:
        if sessions < 1:
            raise ValueError(f"sessions is {sessions}, it must be at least 1")
        self._make, self._port, self._most = make, port, sessions
        self.url = ""
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None
        self._shared = _Session(make)
        self._shared_calls = ThreadPoolExecutor(1, "openenv-http")
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> OpenEnvServer:
        """Listen, in a thread of its own.

        Raises:
            OSError: the port is taken.
        """
        started = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            try:
                self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self._port))
            except BaseException as error:
                failed.append(error)
                return
            finally:
                started.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, name="openenv", daemon=True)
        self._thread.start()
        started.wait()
        if failed:
            raise failed[0]
        assert self._server is not None
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    def close(self) -> None:
        """End all sessions and close their environments. Calling it twice is allowed."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(_WAIT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(_WAIT_S)
        if not self._loop.is_closed() and not self._loop.is_running():
            self._loop.close()
            self._shared_calls.submit(self._shared.close).result(_WAIT_S)
            self._shared_calls.shutdown()

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> OpenEnvServer:
        return self if self._thread is not None else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- connections -------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connection(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError) as error:
            _LOG.info("a connection ended: %s", error)
        except asyncio.CancelledError:  # the server closes; asyncio would log a cancelled connection as an error
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await asyncio.wait_for(_read_request(reader), _IDLE_S)
            if request is None:
                return
            origin = urlsplit(request.headers.get("origin", "http://localhost")).hostname
            host = urlsplit(f"//{request.headers.get('host', 'localhost')}").hostname
            if origin not in _LOCAL or host not in _LOCAL:
                _respond(writer, 403, {"detail": "this server is for programs on its own machine"})
                return
            if request.path == "/ws" and request.headers.get("upgrade", "").lower() == "websocket":
                await self._upgrade(request, reader, writer)
                return
            status, answer = await self._answer_http(request)
            _respond(writer, status, answer)
            await writer.drain()
            if request.headers.get("connection", "").lower() == "close":
                return

    async def _upgrade(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = request.headers.get("sec-websocket-key", "")
        head = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                f"Sec-WebSocket-Accept: {accept_key(key)}")  # fmt: skip
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        if self._open >= self._most:
            message = f"all {self._most} sessions are in use"
            writer.write(frame(_TEXT, _encoded(_error("CAPACITY_REACHED", message))))
            writer.write(frame(_CLOSE, (1013).to_bytes(2, "big")))
            await writer.drain()
            return
        self._open += 1
        session, calls = _Session(self._make), ThreadPoolExecutor(1, "openenv-session")
        try:
            await self._messages(session, calls, reader, writer)
        except WebSocketError as error:
            writer.write(frame(_CLOSE, error.code.to_bytes(2, "big") + str(error).encode()[:120]))
            await writer.drain()
        finally:
            self._open -= 1
            calls.submit(session.close)
            calls.shutdown(wait=False)

    async def _messages(
        self,
        session: _Session,
        calls: ThreadPoolExecutor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            text = await read_message(reader, writer, _MOST_BYTES)
            if text is None:
                return
            answer = await self._loop.run_in_executor(calls, _answer_message, session, text)
            if answer is None:  # the client's own message "close"; its close frame follows
                continue
            writer.write(frame(_TEXT, answer))
            await writer.drain()

    async def _answer_http(self, request: _Request) -> tuple[int, JsonDict]:
        if request.path == "/health":
            return 200, {"status": "healthy"}
        call = _HTTP.get((request.method, request.path))
        if call is None:
            known = any(path == request.path for _, path in _HTTP)
            return (405, {"detail": "Method Not Allowed"}) if known else (404, {"detail": "Not Found"})
        return await self._loop.run_in_executor(self._shared_calls, _answer_request, call, self._shared, request.body)


# -- requests --------------------------------------------------------------------------------------------------------


def _answer_message(session: _Session, text: str) -> bytes | None:
    """Return the answer to a WebSocket message, encoded; None for ``close``."""
    try:
        message = json.loads(text)
    except ValueError as error:
        return _encoded(_error("INVALID_JSON", f"not JSON: {error}"))
    kind = message.get("type") if isinstance(message, Mapping) else None
    if kind == "close":
        return None
    if kind not in ("reset", "step", "state"):
        return _encoded(_error("UNKNOWN_TYPE", f"type is {kind!r:.80}, allowed are reset, step, state and close"))
    try:
        if kind == "state":
            return _encoded({"type": "state", "data": session.state()})
        if kind == "step" and "data" not in message:
            raise _Refused("VALIDATION_ERROR", "a step needs data: the action")
        call = session.step if kind == "step" else session.reset
        return _encoded({"type": "observation", "data": call(message.get("data", {}))})
    except _Refused as refused:
        return _encoded(_error(refused.code, str(refused)))
    except Exception as error:  # whatever a user's environment raises must not end the connection without a word
        _report(error)
        return _encoded(_error("EXECUTION_ERROR", str(error) or type(error).__name__))


def _report(error: Exception) -> None:
    if not isinstance(error, EpisodeError | RobotError | ValueError):
        _LOG.error("a request failed", exc_info=error)


def _error(code: str, message: str) -> JsonDict:
    return {"type": "error", "data": {"message": message, "code": code}}


def _reset_by_http(session: _Session, body: Any) -> JsonDict:
    return session.reset(body)


def _step_by_http(session: _Session, body: Any) -> JsonDict:
    request = _mapping(body, "step")
    if "action" not in request:
        raise _Refused("VALIDATION_ERROR", "a step needs an action")
    return session.step(request["action"])


def _metadata(session: _Session, body: Any) -> JsonDict:
    about = session.env.description.about
    return {
        "name": session.env.world.name,
        "description": about.splitlines()[0] if about else "",
        "readme_content": about,
    }


def _no_tools(session: _Session, body: Any) -> JsonDict:
    number = body.get("id") if isinstance(body, Mapping) else None
    return {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "this environment has no tools"}}


_HTTP: Mapping[tuple[str, str], Callable[[_Session, Any], JsonDict]] = {
    ("POST", "/reset"): _reset_by_http,
    ("POST", "/step"): _step_by_http,
    ("GET", "/state"): lambda session, body: session.state(),
    ("GET", "/schema"): lambda session, body: session.schema(),
    ("GET", "/metadata"): _metadata,
    ("POST", "/mcp"): _no_tools,
}


def _answer_request(call: Callable[[_Session, Any], JsonDict], session: _Session, body: bytes) -> tuple[int, JsonDict]:
    """Return status and answer of an HTTP request."""
    try:
        return 200, call(session, json.loads(body) if body.strip() else {})
    except _Refused as refused:
        return (422 if refused.code == "VALIDATION_ERROR" else 400), {"detail": str(refused)}
    except ValueError as error:
        return 400, {"detail": str(error)}
    except Exception as error:  # as for a message
        _report(error)
        return (400 if isinstance(error, EpisodeError) else 500), {"detail": str(error) or type(error).__name__}


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """Return the next HTTP request of a connection; None at its end.

    Raises:
        ValueError: it is no HTTP request, or too large.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    if len(head) > _MOST_HEADER:
        raise ValueError("the head of a request is too large")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
    }
    size = int(headers.get("content-length", "0"))
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"a request has {size} bytes, allowed are {_MOST_BYTES}")
    return _Request(method, urlsplit(rest.partition(" ")[0]).path, headers, await reader.readexactly(size))


def _encoded(answer: JsonDict) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()


def _respond(writer: asyncio.StreamWriter, status: int, answer: JsonDict) -> None:
    body = _encoded(answer)
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
