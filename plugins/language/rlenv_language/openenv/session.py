"""Answer OpenEnv's requests to one environment as JSON, independently of any connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from hal import EpisodeError, RobotError
from hal.field import JsonDict
from rlenv_robot.adapters.json_schema import protocol_schema
from rlenv_robot.data.chats import decode, encode
from rlenv_robot.env import Environment
from rlenv_robot.tables import ObservationTable, Options

__all__ = ["HTTP", "RefusedError", "Session", "answer_message", "answer_request", "error_message"]

_LOG = logging.getLogger(__name__)

_RESET_TYPES = {"seed": int, "episode_id": str}

_T = TypeVar("_T")


class RefusedError(Exception):
    """A request violates OpenEnv's protocol, or comes at the wrong time.

    Attributes:
        code: one of openenv-core's ``WSErrorCode``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Session:
    """One environment with its own thread, which carries out calls one at a time.

    Args:
        make: returns a new environment; called at the first request that needs one.
    """

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._env: Environment | None = None
        self._table: ObservationTable | None = None
        self._episode_id: str | None = None
        self._steps = 0
        self._thread = ThreadPoolExecutor(1, "openenv-session")

    async def run(self, call: Callable[..., _T], *arguments: object) -> _T:
        """Call a function with this session and the arguments in the session's thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self, *arguments)

    async def close(self) -> None:
        """Close the environment in the session's thread, and end the thread."""
        try:
            await self.run(Session._close)
        finally:
            self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._env is not None:
            self._env.close()

    @property
    def env(self) -> Environment:
        """The environment, created on first use."""
        if self._env is None:
            self._env = self._make()
        return self._env

    def reset(self, data: Any) -> JsonDict:
        """Begin an episode, and return the response to the request.

        Args:
            data: the options of the environment's reset, and optionally ``episode_id``.

        Raises:
            RefusedError: the data are not an object, or contain an option that the environment refuses.
        """
        options = dict(_mapping(data, "reset"))
        for key, kind in _RESET_TYPES.items():
            if options.get(key) is not None and (not isinstance(options[key], kind) or isinstance(options[key], bool)):
                raise RefusedError("VALIDATION_ERROR", f"{key} is {options[key]!r:.80}, expected a {kind.__name__}")
        episode_id = options.pop("episode_id", None)
        reset_options: Options = {key: value for key, value in options.items() if value is not None}
        try:
            self._table = self.env.reset(reset_options)
        except ValueError as error:
            raise RefusedError("VALIDATION_ERROR", str(error)) from error
        self._episode_id, self._steps = episode_id, 0
        return self._answer(self._table, None)

    def step(self, data: Any) -> JsonDict:
        """Carry out an action, and return the response to the request.

        Args:
            data: the action by field, texts as strings; ``metadata`` is ignored.

        Raises:
            RefusedError: the data are not an object, a text is too long, or no episode has begun.
        """
        table = self._table
        if table is None:
            raise RefusedError("EXECUTION_ERROR", "step before reset: send a reset first")
        action = {key: value for key, value in _mapping(data, "step").items() if key != "metadata"}
        spec = self.env.action
        for name in spec.names:
            if spec[name].is_text and not spec[name].shape and isinstance(action.get(name), str):
                try:
                    action[name] = encode(action[name], spec[name])
                except ValueError as error:
                    raise RefusedError("VALIDATION_ERROR", str(error)) from error
        request = {"env_id": self.env.env_id, "frame_no": table["frame_no"], "action": action}
        self._table, reward = self.env.step(request)
        self._steps += self._table["frame_no"] != table["frame_no"]
        return self._answer(self._table, reward["reward"])

    def state(self) -> JsonDict:
        """Return the episode's identifier and the number of its steps."""
        return {"episode_id": self._episode_id, "step_count": self._steps}

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
        added = {"terminated": {"type": "boolean"}, "truncated": {"type": "boolean"}, "frame_no": {"type": "integer"},
                 "env_id": {"type": "string"}, "info": tables["table_1"]["properties"]["extra_info"]}  # fmt: skip
        observation = {**observation, "properties": {**observation["properties"], **added}}
        state = {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer", "minimum": 0}}
        return {"action": action, "observation": observation, "state": {"type": "object", "properties": state}}


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise RefusedError("VALIDATION_ERROR", f"the data of {what} are a {type(data).__name__}, expected an object")
    return data


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


def answer_message(session: Session, text: str) -> str | None:
    """Return the response to a WebSocket message as JSON, or None to a message of type ``close``."""
    try:
        message = json.loads(text)
    except ValueError as error:
        return error_message("INVALID_JSON", f"not JSON: {error}")
    kind = message.get("type") if isinstance(message, Mapping) else None
    if kind == "close":
        return None
    if kind not in ("reset", "step", "state"):
        return error_message("UNKNOWN_TYPE", f"type is {kind!r:.80}, allowed are reset, step, state and close")
    try:
        if kind == "state":
            return _encoded({"type": "state", "data": session.state()})
        if kind == "step" and "data" not in message:
            raise RefusedError("VALIDATION_ERROR", "a step needs data: the action")
        call = session.step if kind == "step" else session.reset
        return _encoded({"type": "observation", "data": call(message.get("data", {}))})
    except RefusedError as refused:
        return error_message(refused.code, str(refused))
    except Exception as error:  # whatever a user's environment raises must not end the connection without a word
        _report(error)
        return error_message("EXECUTION_ERROR", str(error) or type(error).__name__)


def error_message(code: str, message: str) -> str:
    """Return an error message as JSON. The code is one of openenv-core's ``WSErrorCode``."""
    return _encoded({"type": "error", "data": {"message": message, "code": code}})


def _encoded(answer: JsonDict) -> str:
    return json.dumps(answer, separators=(",", ":"))


def _report(error: Exception) -> None:
    if not isinstance(error, EpisodeError | RobotError | ValueError):
        _LOG.error("a request failed", exc_info=error)


def _reset_by_http(session: Session, body: Any) -> JsonDict:
    return session.reset(body)


def _step_by_http(session: Session, body: Any) -> JsonDict:
    request = _mapping(body, "step")
    if "action" not in request:
        raise RefusedError("VALIDATION_ERROR", "a step needs an action")
    return session.step(request["action"])


def _metadata(session: Session, body: Any) -> JsonDict:
    about = session.env.description.about
    return {
        "name": session.env.world.name,
        "description": about.splitlines()[0] if about else "",
        "readme_content": about,
    }


def _no_tools(session: Session, body: Any) -> JsonDict:
    number = body.get("id") if isinstance(body, Mapping) else None
    return {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "this environment has no tools"}}


HTTP: Mapping[tuple[str, str], Callable[[Session, Any], JsonDict]] = {
    ("POST", "/reset"): _reset_by_http,
    ("POST", "/step"): _step_by_http,
    ("GET", "/state"): lambda session, body: session.state(),
    ("GET", "/schema"): lambda session, body: session.schema(),
    ("GET", "/metadata"): _metadata,
    ("POST", "/mcp"): _no_tools,
}
"""(method, path) -> the function that answers such a request from its body."""


def answer_request(session: Session, call: Callable[[Session, Any], JsonDict], body: bytes) -> tuple[int, JsonDict]:
    """Return the status and the response to an HTTP request, by calling one of the functions in `HTTP`."""
    try:
        return 200, call(session, json.loads(body) if body.strip() else {})
    except RefusedError as refused:
        return (422 if refused.code == "VALIDATION_ERROR" else 400), {"detail": str(refused)}
    except ValueError as error:
        return 400, {"detail": str(error)}
    except Exception as error:  # as for a message
        _report(error)
        return (400 if isinstance(error, EpisodeError) else 500), {"detail": str(error) or type(error).__name__}
