"""Messages of a browser, each bounded and validated before anything is done with it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

__all__ = [
    "ACTS", "MAX_BYTES", "Act", "Choice", "Compare", "Drive", "Login", "Message", "MessageError", "Replay", "Seen",
    "parse",
]  # fmt: skip

MAX_BYTES = 4096
"""Most bytes of one message."""

MAX_AXES = 64
"""Most numbers of a command that a page can move."""

ACTS = ("arm", "hold", "reset_done", "reset_refused", "success", "failure", "discard", "stop")
"""The acts of an operator."""

_Finite = Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)]
_Place = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False)]
_Short = Annotated[str, Field(max_length=64)]


class MessageError(ValueError):
    """A message that no page of ours sends."""


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Login(_Message):
    """The first message of a page.

    Attributes:
        token: of the visitor.
    """

    t: Literal["login"]
    token: Annotated[str, Field(max_length=200)]


class Act(_Message):
    """An operator's act.

    Attributes:
        id: given back with the outcome.
        act: one of `ACTS`.
        text: a reason or a remark, one line.
        stop_number: of the newest stop that the page showed; an arming clears no later one.
        take: whether to take the robot from another client, which needs the role ``operate``.
    """

    t: Literal["act"]
    id: Annotated[int, Field(ge=0, lt=2**31)]
    act: Literal["arm", "hold", "reset_done", "reset_refused", "success", "failure", "discard", "stop"]
    text: Annotated[str, Field(max_length=500)] = ""
    stop_number: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    take: bool = False


class Drive(_Message):
    """The state of a person's input device.

    Attributes:
        engaged: whether the clutch is closed; open, the robot holds.
        axes: wanted velocity of each commanded number as a share of the greatest one, -1 to 1.
        device: ``keyboard``, ``gamepad``, ``touch`` or ``xr`` (a headset, or a phone that knows where it is).
        hand: place of a hand in space, in place of ``axes``: the numbers of `rlenv_operate.console.hand.HAND`.
    """

    t: Literal["drive"]
    engaged: bool
    axes: Annotated[list[_Finite], Field(max_length=MAX_AXES)]
    device: Literal["keyboard", "gamepad", "touch", "xr"] = "keyboard"
    hand: Annotated[list[_Place], Field(min_length=6, max_length=6)] | None = None


class Choice(_Message):
    """The cameras that a page shows; it is sent no others.

    Attributes:
        cameras: their names.
    """

    t: Literal["see"]
    cameras: Annotated[list[_Short], Field(max_length=16)]


class Seen(_Message):
    """The number of states and images that a page has taken so far; it is sent a few more than that.

    Attributes:
        n: since its login.
    """

    t: Literal["seen"]
    n: Annotated[int, Field(ge=0, lt=2**53)]


class Replay(_Message):
    """A question for recorded episodes.

    Attributes:
        episode: its number; None asks for the list.
        simulated: whether the simulation of the episode is asked for, in place of the measurements.
        slot: given back with the answer.
    """

    t: Literal["replay"]
    episode: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    simulated: bool = False
    slot: Annotated[int, Field(ge=0, le=1)] = 0


class Compare(_Message):
    """A question for two episodes to compare, with the answer on the two before, if they were judged.

    Attributes:
        pair: the number under which the page was sent the pair that ``choice`` is on.
        choice: the answer; None only asks for a pair.
    """

    t: Literal["compare"]
    pair: Annotated[int, Field(ge=0, lt=2**31)] = 0
    choice: Literal["left", "right", "equal", "skip"] | None = None


Message = Login | Act | Drive | Choice | Seen | Replay | Compare
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="t")])


def parse(text: str) -> Message:
    """Return a message.

    Raises:
        MessageError: it is too long, or no message of ours; the text says where.
    """
    if len(text) > MAX_BYTES:
        raise MessageError(f"a message has {len(text)} characters, allowed are {MAX_BYTES}")
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise MessageError(f"{place or 'the message'}: {first['msg']}") from None
