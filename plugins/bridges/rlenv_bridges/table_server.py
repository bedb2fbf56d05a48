"""Serve an environment or recorded data as JSON to another process, for programs in any language (clause 6.4 a; R4.1).

The subject's protocol page describes the messages (``rlenv-robot protocol NAME``; ``--format json`` for JSON Schema).
`TableServer` answers over ZeroMQ, `serve_lines` over standard input and output, one message a line.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import zmq

from hal.field import JsonDict
from rlenv_robot.adapters.json_messages import RequestError, error_answer, read_request
from rlenv_robot.adapters.json_schema import describe_environment, describe_source, plain_json
from rlenv_robot.env import Environment
from rlenv_robot.source import SourceData
from rlenv_robot.tables import VisualisationTable

__all__ = ["LARGEST_REQUEST", "RequestHandler", "TableServer", "serve_lines"]

LARGEST_REQUEST = 1 << 20
"""Largest request, bytes; a longer one ends its connection before it takes memory."""

_POLL_MS = 200


class _EnvironmentAnswers:
    """Carry out the requests of an environment.

    Args:
        env: the environment, which `close` closes.
    """

    calls = ("describe", "reset", "step", "render", "end", "close")

    def __init__(self, env: Environment) -> None:
        self.env = env

    def carry_out(self, request: Mapping[str, Any]) -> JsonDict:
        """Return the answer to a request that `read_request` returned."""
        call = request["call"]
        if call == "describe":
            return {**describe_environment(self.env), "calls": list(self.calls)}
        if call == "reset":
            return {"observation": plain_json(self.env.reset(request.get("options", {})))}
        if call == "step":
            table, reward = self.env.step(request["action"], request.get("extra_info", {}))
            return {"observation": plain_json(table), "reward": plain_json(reward)}
        if call == "render":
            return {"frame": self._frame(request.get("options", {}))}
        if call == "end":
            return {"observation": plain_json(self.env.end(request["reason"]))}
        self.close()
        return {"closed": True}

    def _frame(self, options: Any) -> JsonDict:
        """Return Table 4. The picture comes in the answer, so that a client writes no file of the server's."""
        if not isinstance(options, dict) or options.get("mode", "call") != "call" or "to" in options:
            raise ValueError(
                f"options are {options!s:.80}, allowed are camera, width, height and fine; the picture is in the answer"
            )
        frames = list[VisualisationTable]()
        self.env.render({**options, "mode": "call", "to": frames.append})
        frame: JsonDict = plain_json(frames[0])
        return frame

    def close(self) -> None:
        """Close the environment. Safe to call more than once."""
        self.env.close()


class _SourceAnswers:
    """Carry out the requests of recorded data.

    Args:
        source: the recorded data.
    """

    calls = (
        "describe", "init", "sample_steps", "sample_trajectories", "get_all_actions", "statistics", "close",
    )  # fmt: skip

    def __init__(self, source: SourceData) -> None:
        self.source = source

    def carry_out(self, request: Mapping[str, Any]) -> JsonDict:
        """Return the answer to a request that `read_request` returned."""
        call, extra = request["call"], request.get("extra_info", {})
        if call == "describe":
            return {**describe_source(self.source), "calls": list(self.calls)}
        if call == "init":
            self.source.init(request.get("options", {}))
            return {"initialised": True}
        if call == "sample_steps":
            return {"steps": plain_json(self.source.sample_steps(request["batch_size"], extra))}
        if call == "sample_trajectories":
            drawn = self.source.sample_trajectories(request["trajectory_size"], extra)
            return {"trajectories": plain_json(drawn)}
        if call == "get_all_actions":
            return {"actions": plain_json(self.source.get_all_actions(extra))}
        if call == "statistics":
            return {"statistics": plain_json(self.source.statistics(extra))}
        return {"closed": True}

    def close(self) -> None:
        """Do nothing, since recorded data hold nothing open."""


class RequestHandler:
    """Answer the requests of one subject, until one of them closes it.

    Args:
        subject: an environment, which `close` closes, or recorded data.

    Attributes:
        closed: whether a request has closed the subject.
    """

    def __init__(self, subject: Environment | SourceData) -> None:
        self._answers = _EnvironmentAnswers(subject) if isinstance(subject, Environment) else _SourceAnswers(subject)
        self.closed = False

    def answer(self, text: bytes) -> bytes:
        """Return the answer to a request, both as JSON. The answer to an impossible request gives the reason."""
        number, call = None, ""
        try:
            request, number = read_request(text)
            call = request["call"]
            if call not in self._answers.calls:
                raise NotImplementedError(f"{call!r} is not offered here, allowed are {', '.join(self._answers.calls)}")
            result = self._answers.carry_out(request)
            self.closed = call == "close"
        except Exception as error:  # whatever a caller in another language sends, it gets an answer
            number = error.number if isinstance(error, RequestError) else number
            result = error_answer(error, call)
        return json.dumps({**({} if number is None else {"id": number}), **result}, allow_nan=False).encode()

    def close(self) -> None:
        """Close the subject. Safe to call more than once."""
        self._answers.close()


def serve_lines(subject: Environment | SourceData, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests, one a line, until the input ends or a request closes the subject.

    Args:
        subject: an environment, which is closed at the end, or recorded data.
        requests: gives a request a line, such as ``sys.stdin.buffer``.
        answers: takes an answer a line, such as ``sys.stdout.buffer``; nothing else may be written to it.
    """
    handler = RequestHandler(subject)
    try:
        while not handler.closed:
            line = requests.readline(LARGEST_REQUEST + 1)
            if not line:
                break
            answers.write(handler.answer(line) + b"\n")
            answers.flush()
    finally:
        handler.close()


class TableServer:
    """Answer requests one at a time, as JSON over ZeroMQ's REQ and REP.

    Any process on this machine may connect without keys, since the socket listens only on the loopback. A robot on the
    network has its own wire protocol (docs/wire.md).

    Args:
        subject: an environment, which `close` closes, or recorded data.
        endpoint: an address such as ``tcp://127.0.0.1:5650`` (port ``*`` takes a free one), or ``ipc://`` and a path.

    Raises:
        ValueError: the endpoint is not on this machine.
        zmq.ZMQError: the endpoint is taken.
    """

    def __init__(self, subject: Environment | SourceData, endpoint: str = "tcp://127.0.0.1:5650") -> None:
        _check_local(endpoint)
        self._handler = RequestHandler(subject)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_REQUEST)
        try:
            self._socket.bind(endpoint)
        except BaseException:
            self._socket.close(0)
            raise
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def serve(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Answer requests until one of them closes the subject, or ``stopped`` returns True."""
        try:
            while not self._handler.closed and not stopped():
                if self._socket.poll(_POLL_MS):
                    self._socket.send(self.answer(self._socket.recv()))
        finally:
            self.close()

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request, both as JSON. The answer to an impossible request gives the reason."""
        return self._handler.answer(request)

    def close(self) -> None:
        """Close the subject and the socket. Safe to call more than once."""
        self._socket.close()
        self._handler.close()


def _check_local(endpoint: str) -> None:
    scheme, _, place = endpoint.partition("://")
    host = place.rpartition(":")[0].strip("[]")
    try:
        local = scheme == "ipc" or (scheme == "tcp" and ipaddress.ip_address(host).is_loopback)
    except ValueError:
        local = False
    if not local:
        raise ValueError(
            f"endpoint is {endpoint!r}, allowed are ipc:// and the loopback, such as tcp://127.0.0.1:5650: tables have "
            "no keys; to reach a robot from another machine, serve it (rlenv-robot serve)"
        )
