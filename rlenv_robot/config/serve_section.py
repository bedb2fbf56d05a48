"""The section ``[serve]`` of a profile, which also defines the options of ``rlenv-robot serve``.

It imports no package of the project, so that the help of ``serve`` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Interval

__all__ = ["ServeSection"]

_Positive: TypeAlias = Annotated[float, Gt(0)]
_NotNegative: TypeAlias = Annotated[float, Ge(0)]
_Count: TypeAlias = Annotated[int, Ge(0)]


@dataclass(frozen=True, slots=True)
class ServeSection:
    """The settings of `rlenv-robot serve`; an option of the same name overrides a key.

    Attributes:
        address: the endpoint to bind; port * selects a free one.
        keys: folder of the server's keys, and of the clients that `rlenv-robot robot keys allow` added; empty disables
            encryption, which only loopback allows.
        latch: folder in which a stop outlives the server; empty uses that of the keys or of ``record``, if there is
            one.
        telemetry: the endpoint for clients that watch the robot; empty disables telemetry.
        telemetry_hz: messages of telemetry a second.
        pictures: the endpoint of the cameras' images; empty selects a free port beside the address.
        stop: the endpoint for stops only; empty selects a free port beside the address.
        loop_hz: rate of the robot's control loop, a whole multiple of the control rate; 0 is the control rate itself.
        watchdog_s: longest silence of the client before the robot holds, seconds.
        max_command_age_s: commands that were sent longer ago are refused, seconds.
        ahead: largest number of frames for which a client may send commands in advance, for a slow network; 0 refuses
            them. The robot may move for so many control periods longer after its client has died.
        on_silence: what the robot does after that silence: hold, stay where it is; park, go home at reset.velocity and
            hold there; or damp, give way under damping, if its driver supports it.
        lease_s: length of silence after which another client may take the robot, seconds.
        lower_s: time limit for going home slowly at the end, seconds; 0 stops where it is.
        stopped_at_end: what a stopped robot does at the end: hold, so that a person must cut its power; or let_down, as
            any other robot.
        priority: priority of the loop in the real-time scheduler, 1 to 99; 0 does not request it.
        record: folder of the controller's own runs; empty records none.
        record_mib: maximum size of one of these runs, MiB; 0 is limited by the disk only.
        record_required: refuse resets while the controller can't record.
    """

    address: str = "tcp://127.0.0.1:5555"
    keys: str = ""
    latch: str = ""
    telemetry: str = ""
    telemetry_hz: _Positive = 20.0
    pictures: str = ""
    stop: str = ""
    loop_hz: _NotNegative = 0.0
    watchdog_s: _Positive = 0.2
    on_silence: Literal["hold", "damp", "park"] = "hold"
    max_command_age_s: _Positive = 0.1
    ahead: Annotated[int, Interval(ge=0, le=10)] = 0
    lease_s: _Positive = 5.0
    lower_s: _NotNegative = 5.0
    stopped_at_end: Literal["hold", "let_down"] = "hold"
    priority: Annotated[int, Interval(ge=0, le=99)] = 40
    record: str = ""
    record_mib: _Count = 0
    record_required: bool = False

    removed: ClassVar[Mapping[str, str]] = {
        "datagrams": "is gone, remove it: steps go by ZeroMQ alone, which now sends a step again whose answer is late"
    }
