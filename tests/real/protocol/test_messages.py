"""Encoding, decoding, and everything that is refused."""

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import WireError
from real.protocol import messages as wire
from real.protocol.messages import Message, MessageKind, decode, encode, encode_step

numbers = st.integers(0, 2**63 - 1)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


stamps = st.integers(-(2**63), 2**63 - 1)
times = st.none() | stamps | st.lists(stamps, min_size=2, max_size=2)


@given(st.sampled_from(MessageKind), numbers, numbers, plain, st.lists(st.binary(max_size=64), max_size=4), times)
def test_what_is_encoded_is_decoded(kind, session, sequence, detail, frames, times):
    message = decode(encode(kind, session, sequence, detail, frames, times))
    assert message == Message(kind, session, sequence, detail, frames, times)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=2000))
def test_a_step_that_is_packed_by_hand_reads_as_any_other(session, sequence, sent_ns, row):
    """Each copy of a step is made so, as its time of sending is another."""
    ours = decode([encode_step(session, sequence, sent_ns, row)])
    assert ours == decode(encode(MessageKind.STEP, session, sequence, None, [row], sent_ns))


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_frames_are_a_message_or_a_wire_error(frames):
    with contextlib.suppress(WireError):
        assert isinstance(decode(frames), Message)


@given(plain, st.binary(max_size=8))
def test_any_header_is_a_message_or_a_wire_error(header, tail):
    with contextlib.suppress(WireError):
        assert isinstance(decode([msgpack.packb(header) + tail]), Message)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ([wire.VERSION + 1, 1, 0, 0, None], "version is 4 here and 5 there; install the same"),
        ([wire.VERSION, 99, 0, 0, None, None, None], "kind 99 is unknown"),
        ([wire.VERSION, True, 0, 0, None, None, None], "kind True is unknown"),
        ([wire.VERSION, 1, 0, 0], "has 4 elements"),
        ([wire.VERSION, 1, -1, 0, None, None, None], "session -1"),
        ([wire.VERSION, 1, 0, 2**63, None, None, None], "sequence 9223372036854775808"),
        ([wire.VERSION, 1, 0, 1.5, None, None, None], "sequence 1.5"),
        ([wire.VERSION, 1, 0, 0, None, None, "text"], "row in the header is a str"),
        ([wire.VERSION, 1, 0, 0, 1.5, None, None], "times 1.5"),
        ([wire.VERSION, 1, 0, 0, [1], None, None], r"times \[1\]"),
        ([wire.VERSION, 1, 0, 0, [1, 2**63], None, None], r"times \[1, 9"),
        ({}, "not a list"),
        ([], "not a list"),
        (msgpack.ExtType(1, b"code"), "not readable msgpack"),
    ],
)
def test_headers_that_are_refused(header, problem):
    with pytest.raises(WireError, match=problem):
        decode([msgpack.packb(header)])


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([], "0 frames"),
        ([b"x"] * (wire.MAX_FRAMES + 1), "19 frames, allowed are 1 to 18"),
        ([b"x" * (wire.MAX_HEADER_BYTES + 1)], "a header of 65537 bytes"),
        ([b"x", bytes(wire.MAX_FRAME_BYTES + 1)], "a frame of"),
        ([b"\xdd\xff\xff\xff\xff"], "not readable msgpack"),  # promises 4 thousand million elements
        ([b"\x91" * 4000], "not readable msgpack"),  # a list in a list in a list
    ],
)
def test_frames_that_are_refused(frames, problem):
    with pytest.raises(WireError, match=problem):
        decode(frames)


def test_what_is_not_plain_is_not_sent():
    for detail in (object(), {"f": open}, {1: 2 + 3j}, 2**70):
        with pytest.raises(WireError, match="numbers, text, lists and mappings only"):
            encode(MessageKind.RESET, 1, 1, detail)
