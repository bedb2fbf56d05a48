"""Parse the messages of a browser, which are bounded and validated before any use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

__all__ = [
    "ACTS", "MAX_BYTES", "Act", "Choice", "Compare", "Drive", "Job", "Login", "Message", "MessageError", "Name",
    "Replay", "Results", "Seen", "parse",
]  # fmt: skip

MAX_BYTES = 4096
"""Maximum size of a message, bytes."""

MAX_AXES = 64
"""Maximum number of commanded values that a page can move."""

ACTS = ("arm", "hold", "reset_done", "reset_refused", "success", "failure", "discard", "stop")
"""The acts of an operator."""

_Finite = Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)]
_Place = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False)]
_Short = Annotated[str, Field(max_length=64)]


class MessageError(ValueError):
    """Say that a message is not one that the console's page sends."""


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Login(_Message):
    """The first message of a page.

    Attributes:
        token: the token of the visitor.
    """

    t: Literal["login"]
    token: Annotated[str, Field(max_length=200)]


class Act(_Message):
    """An operator's act.

    Attributes:
        id: returned with the outcome.
        act: one of `ACTS`.
        text: a reason or a remark, one line.
        stop_number: number of the newest stop that the page showed; arming clears no later one.
        take: whether to take the robot over from another client, which needs the role ``operate``.
        policy: for ``arm``: name of the policy that moves the robot in the person's place; empty for none.
        episodes: for ``arm`` with a policy: number of episodes.
        ask: for ``arm`` with a policy: whether the person is asked for a verdict on each episode.
    """

    t: Literal["act"]
    id: Annotated[int, Field(ge=0, lt=2**31)]
    act: Literal["arm", "hold", "reset_done", "reset_refused", "success", "failure", "discard", "stop"]
    text: Annotated[str, Field(max_length=500)] = ""
    stop_number: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    take: bool = False
    policy: _Short = ""
    episodes: Annotated[int, Field(ge=1, le=100)] = 1
    ask: bool = True


class Drive(_Message):
    """The state of a person's input device.

    Attributes:
        engaged: whether the clutch is closed; while it is open, the robot holds.
        axes: requested velocity of each commanded value as a share of the maximum, -1 to 1.
        device: ``keyboard``, ``gamepad``, ``touch`` or ``xr`` (a headset, or a phone with pose tracking).
        hand: pose of a hand, in place of ``axes``: the components of `rlenv_operate.console.hand.HAND`.
    """

    t: Literal["drive"]
    engaged: bool
    axes: Annotated[list[_Finite], Field(max_length=MAX_AXES)]
    device: Literal["keyboard", "gamepad", "touch", "xr"] = "keyboard"
    hand: Annotated[list[_Place], Field(min_length=6, max_length=6)] | None = None


class Choice(_Message):
    """The cameras that a page shows; it receives images of these only.

    Attributes:
        cameras: their names.
    """

    t: Literal["see"]
    cameras: Annotated[list[_Short], Field(max_length=16)]


class Seen(_Message):
    """The number of states and images that a page has processed, which limits how many more are sent.

    Attributes:
        n: since its login.
    """

    t: Literal["seen"]
    n: Annotated[int, Field(ge=0, lt=2**53)]


class Replay(_Message):
    """A request for recorded episodes.

    Attributes:
        episode: its number; None requests the list.
        simulated: whether to return a simulation of the episode instead of the measurements.
        slot: returned with the answer.
    """

    t: Literal["replay"]
    episode: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    simulated: bool = False
    slot: Annotated[int, Field(ge=0, le=1)] = 0


class Compare(_Message):
    """A request for two episodes to compare, with the answer on the previous pair, if there is one.

    Attributes:
        pair: number of the pair that ``choice`` is about.
        choice: the answer; None only requests a pair.
    """

    t: Literal["compare"]
    pair: Annotated[int, Field(ge=0, lt=2**31)] = 0
    choice: Literal["left", "right", "equal", "skip"] | None = None


class Job(_Message):
    """A request to start, end or answer the command of a step.

    Attributes:
        id: returned with the outcome.
        do: ``start``, ``end``, or ``enter``, which answers the command's request as Enter does at a terminal.
        step: the step.
        robot: for ``robot``: the robot's model.
        where: for ``robot``: its place.
        task: for ``robot``: the task.
        method: for ``train``.
        name: for ``train`` and ``retrain``: name of the new policy.
        policy: for ``retrain``: the policy to improve.
        steps: control steps; 0 for the command's default.
        seed: for ``train``: seed of all random draws.
        resume: for ``train``: whether to go on with the interrupted training.
        restart: for ``calibrate``: whether to sweep all joints anew.
    """

    t: Literal["job"]
    id: Annotated[int, Field(ge=0, lt=2**31)]
    do: Literal["start", "end", "enter"]
    step: Literal["robot", "calibrate", "train", "retrain"]
    robot: _Short = ""
    where: Annotated[str, Field(max_length=200)] = ""
    task: _Short = ""
    method: _Short = ""
    name: _Short = ""
    policy: _Short = ""
    steps: Annotated[int, Field(ge=0, le=10**9)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    resume: bool = False
    restart: bool = False


class Name(_Message):
    """The name of the person at a page whose token names nobody.

    Attributes:
        name: printable characters.
    """

    t: Literal["name"]
    name: Annotated[str, Field(min_length=1, max_length=40)]


class Results(_Message):
    """A request for what each policy reached in the recorded episodes."""

    t: Literal["results"]


Message = Login | Act | Drive | Choice | Seen | Replay | Compare | Job | Name | Results
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="t")])


def parse(text: str) -> Message:
    """Parse a message.

    Raises:
        MessageError: the message is too long, or not one of the page's; the text says where.
    """
    if len(text) > MAX_BYTES:
        raise MessageError(f"a message has {len(text)} characters, allowed are {MAX_BYTES}")
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise MessageError(f"{place or 'the message'}: {first['msg']}") from None
