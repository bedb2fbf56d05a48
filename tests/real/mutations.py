"""Change recorded messages and byte streams in many ways; each seed gives the same changes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgpack

from real import MessageKind
from real.protocol import messages as wire
from real.protocol.messages import MAX_FRAMES

STRANGE = (
    0, -1, 2**63, 2**64 - 1, -(2**63), 1e308, float("nan"), float("inf"), None, True, "", "\x00", "é" * 99, b"",
    b"\xff" * 99, [], {}, [[[[[[]]]]]], {"": {}}, {1: 2}, ["x"] * 500,
)  # fmt: skip


class Mutator:
    """Make strange messages of sound ones.

    Args:
        sound: recorded messages, each a list of frames.
        seed: of all randomness.
    """

    def __init__(self, sound: Sequence[Sequence[bytes]], seed: int) -> None:
        self._sound = [list(message) for message in sound]
        self._dice = random.Random(seed)
        self._ways = (self._bytes, self._cut, self._value, self._frames, self._spliced, self._noise)

    def message(self) -> list[bytes]:
        """Return a message that is no legal order: a server would rightly obey a stop or a take-over by force."""
        while True:
            made = self._dice.choice(self._ways)(list(self._dice.choice(self._sound)))[: MAX_FRAMES + 3]
            if made and not _legal(made):
                return made

    def stream(self, sound: bytes) -> bytes:
        """A stream of bytes, changed."""
        changed = self._dice.choice((self._bytes, self._cut, self._noise))([sound])
        return changed[0] if changed else b"\x00"

    def _bytes(self, frames: list[bytes]) -> list[bytes]:
        at = self._dice.randrange(len(frames))
        frame = bytearray(frames[at])
        for _ in range(self._dice.choice((1, 1, 2, 3, 30))):
            if frame:
                place = self._dice.randrange(len(frame))
                frame[place] = self._dice.choice((frame[place] ^ 1 << self._dice.randrange(8), 0, 255, 0xC1, 0xDF))
        frames[at] = bytes(frame)
        return frames

    def _cut(self, frames: list[bytes]) -> list[bytes]:
        at = self._dice.randrange(len(frames))
        frame = frames[at]
        place, more = self._dice.randrange(len(frame) + 1), self._dice.randrange(1, 40)
        frames[at] = self._dice.choice(
            (frame[:place], frame[place:], frame[:place] + frame[max(0, place - more) :], frame * more)
        )[:100_000]
        return frames

    def _value(self, frames: list[bytes]) -> list[bytes]:
        """Well-formed msgpack with another value somewhere in it."""
        body = msgpack.unpackb(frames[0], strict_map_key=False)
        at = self._dice.randrange(len(body))
        detail = body[5]
        if at == 5 and isinstance(detail, dict) and detail:
            key = self._dice.choice(sorted(detail))
            if self._dice.random() < 0.3:
                del detail[key]
            else:
                detail[key] = self._dice.choice(STRANGE)
        else:
            body[at] = self._dice.choice((*STRANGE, *range(30)))
        if self._dice.random() < 0.1:
            body = body[: self._dice.randrange(len(body))]
        try:
            return [msgpack.packb(body), *frames[1:]]
        except (OverflowError, ValueError):
            return [b"\xc1"]

    def _frames(self, frames: list[bytes]) -> list[bytes]:
        other = self._dice.choice(self._sound)
        return self._dice.choice(
            (frames[1:], frames * self._dice.randrange(2, 25), [*frames, *other], [b"", *frames], [*frames[::-1], b""])
        )

    def _spliced(self, frames: list[bytes]) -> list[bytes]:
        other = self._dice.choice(self._sound)[0]
        return [frames[0][: self._dice.randrange(len(frames[0]) + 1)] + other[self._dice.randrange(len(other) + 1) :]]

    def _noise(self, frames: list[bytes]) -> list[bytes]:
        return [self._dice.randbytes(self._dice.choice((0, 1, 7, 64, 300, 3000))) for _ in frames]


def _legal(frames: list[bytes]) -> bool:
    try:
        message = wire.decode(frames)
    except Exception:
        return False
    taking = (
        message.kind is MessageKind.HELLO and isinstance(message.detail, dict) and message.detail.get("take") != "no"
    )
    return message.kind is MessageKind.STOP or taking
