"""Call Unitree's services, and answer as one: requests and responses of `unitree_api` over two DDS topics.

A service such as ``motion_switcher`` takes requests on ``rt/api/motion_switcher/request`` and answers on
``rt/api/motion_switcher/response``. Parameters and answers are JSON text. (unitree_sdk2_python 37116c5,
`unitree_sdk2py/idl/unitree_api/msg/dds_`, `unitree_sdk2py/rpc` and `unitree_sdk2py/comm/motion_switcher`.)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from hal.errors import RobotError
from rlenv_unitree.channel import Channel, cyclonedds, wait_until

__all__ = ["CHECK_MODE", "MOTION_SWITCHER", "NOT_IMPLEMENTED", "RELEASE_MODE", "SELECT_MODE", "Client", "Service"]

MOTION_SWITCHER = "motion_switcher"
"""The service that starts and ends the robot's own motion control."""

CHECK_MODE, SELECT_MODE, RELEASE_MODE = 1001, 1002, 1003
"""Calls of `MOTION_SWITCHER`. the first answers ``{"form": ..., "name": ...}``; the name is empty after a release."""

_AGAIN_S = 0.5

NOT_IMPLEMENTED = 3203
"""Status of a call that the service does not have."""


class Client:
    """Call one service of a robot.

    Args:
        channel: an open channel to the robot.
        service: name of the service, such as `MOTION_SWITCHER`.
    """

    def __init__(self, channel: Channel, service: str) -> None:
        request, response = _types()
        self.service = service
        self._writer = channel.endpoint("pub", f"rt/api/{service}/request", request)
        self._reader = channel.endpoint("sub", f"rt/api/{service}/response", response)

    def call(self, api_id: int, parameter: str = "{}", timeout_s: float = 5.0) -> tuple[int, str]:
        """Call a function and return the status, 0 for success, and the answer's text.

        The request is sent again twice a second, since a service that has not yet matched this client's reader answers
        to nobody. So call functions only that may be carried out twice.

        Raises:
            RobotError: no service answered within the time.
        """
        deadline = time.monotonic() + timeout_s
        number = time.monotonic_ns()
        answers: list[Any] = []

        def answered() -> bool:
            answers.extend(answer for answer in self._reader.take(16) if _identity(answer) == (number, api_id))
            return bool(answers)

        matched = wait_until(lambda: self._writer.get_matched_subscriptions(), timeout_s)
        while matched and not answers and (left_s := deadline - time.monotonic()) > 0:
            self._writer.write(_request(number, api_id, parameter))
            wait_until(answered, min(left_s, _AGAIN_S))
        if not answers:
            raise RobotError(
                f"the robot's service {self.service} did not answer call {api_id} within {timeout_s:g} s "
                f"({'it was found' if matched else 'no such service was found'}); is the robot on, and on this network?"
            )
        return int(answers[0].header.status.code), str(answers[0].data)


class Service:
    """Answer the calls to one service.

    Args:
        channel: an open channel.
        name: name of the service.
        handle: takes the number of the function and the parameter's text; returns the status and the answer's text.
    """

    def __init__(self, channel: Channel, name: str, handle: Callable[[int, str], tuple[int, str]]) -> None:
        request, response = _types()
        self._handle = handle
        self._reader = channel.endpoint("sub", f"rt/api/{name}/request", request)
        self._writer = channel.endpoint("pub", f"rt/api/{name}/response", response)

    def poll(self) -> None:
        """Answer the calls that have arrived since the last one, without waiting."""
        for request in self._reader.take(16):
            identity = _identity(request)
            if identity is not None:
                status, data = self._handle(identity[1], str(request.parameter))
                if not request.header.policy.noreply:
                    self._writer.write(_response(identity, status, data))


def _identity(message: Any) -> tuple[int, int] | None:
    """Return a message's number and function; nothing for a note that a writer has left."""
    header = getattr(message, "header", None)
    return (int(header.identity.id), int(header.identity.api_id)) if header is not None else None


def _request(number: int, api_id: int, parameter: str) -> Any:
    request = _types()[0]
    header, parts = _parts(request, "header")
    return request(
        header=header(
            identity=parts["identity"](id=number, api_id=api_id),
            lease=parts["lease"](id=0),
            policy=parts["policy"](priority=0, noreply=False),
        ),
        parameter=parameter,
        binary=[],
    )


def _response(identity: tuple[int, int], status: int, data: str) -> Any:
    response = _types()[1]
    header, parts = _parts(response, "header")
    named = parts["identity"](id=identity[0], api_id=identity[1])
    return response(header=header(identity=named, status=parts["status"](code=status)), data=data, binary=[])


def _parts(message: Any, member: str) -> tuple[Any, dict[str, Any]]:
    kind = message.__annotations__[member]
    return kind, kind.__annotations__


@functools.cache
def _types() -> tuple[Any, Any]:
    """Return the cyclonedds types of requests and responses."""
    dds = cyclonedds()
    types, annotations = dds.idl.types, dds.idl.annotations

    def struct(name: str, **members: Any) -> Any:
        made = dds.idl.make_idl_struct(name, f"unitree_api.msg.dds_.{name}", members)
        return annotations.autoid("sequential")(annotations.final(made))

    identity = struct("RequestIdentity_", id=types.int64, api_id=types.int64)
    policy = struct("RequestPolicy_", priority=types.int32, noreply=bool)
    lease = struct("RequestLease_", id=types.int64)
    asked = struct("RequestHeader_", identity=identity, lease=lease, policy=policy)
    answered = struct("ResponseHeader_", identity=identity, status=struct("ResponseStatus_", code=types.int32))
    octets = types.sequence[types.uint8]
    return (
        struct("Request_", header=asked, parameter=str, binary=octets),
        struct("Response_", header=answered, data=str, binary=octets),
    )
