"""A datagram counts once, unchanged, within its channel and in its direction."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.errors import WireError
from real.protocol.datagrams import (
    MOST_BYTES,
    MOST_MESSAGE_BYTES,
    RESEND_S,
    ChannelOffer,
    DatagramCodec,
    datagram_address,
)

CHANNEL = bytes(range(8))
KEYS = [None, bytes(range(32))]
MESSAGES = st.binary(max_size=MOST_MESSAGE_BYTES)


@pytest.fixture(params=KEYS, ids=["plain", "sealed"])
def offer(request):
    if request.param is not None:
        pytest.importorskip("cryptography")
    return ChannelOffer(CHANNEL, request.param)


@pytest.fixture
def sealed():
    pytest.importorskip("cryptography")
    return ChannelOffer(CHANNEL, KEYS[1])


def ends(offer):
    return DatagramCodec(offer, server=False), DatagramCodec(offer, server=True)


def test_a_message_goes_through_in_both_directions(offer):
    client, server = ends(offer)
    for message in (b"", b"a step", bytes(MOST_MESSAGE_BYTES)):
        assert server.open(client.seal(message)) == message
        assert client.open(server.seal(message)) == message
        assert len(client.seal(message)) <= MOST_BYTES


def test_a_datagram_is_opened_once_and_never_after_a_newer_one(offer):
    client, server = ends(offer)
    first, second, third = (client.seal(bytes([n])) for n in range(3))
    assert server.open(second) == b"\1"
    assert server.open(second) is None
    assert server.open(first) is None
    assert server.open(third) == b"\2"


def test_what_an_end_has_sent_does_not_come_back_to_it_as_the_others(sealed):
    client, server = ends(sealed)
    assert client.open(client.seal(b"a step")) is None
    assert server.open(server.seal(b"a reading")) is None


def test_another_key_or_channel_opens_nothing(sealed):
    client, _ = ends(sealed)
    for other in (ChannelOffer(CHANNEL, bytes(32)), ChannelOffer(bytes(8), sealed.key)):
        assert DatagramCodec(other, server=True).open(client.seal(b"a step")) is None


@given(MESSAGES, st.integers(0, 2**31), st.integers(1, 255))
def test_one_changed_byte_is_found(message, at, change):
    pytest.importorskip("cryptography")
    client, server = ends(ChannelOffer(CHANNEL, KEYS[1]))
    datagram = bytearray(client.seal(message))
    datagram[at % len(datagram)] ^= change
    assert server.open(bytes(datagram)) is None
    assert server.open(client.seal(message)) == message, "and costs the next one nothing"


@given(MESSAGES, st.data())
def test_a_cut_or_lengthened_datagram_is_found(message, data):
    pytest.importorskip("cryptography")
    client, server = ends(ChannelOffer(CHANNEL, KEYS[1]))
    datagram = client.seal(message)
    cut = data.draw(st.integers(0, len(datagram) - 1))
    assert server.open(datagram[:cut]) is None
    assert server.open(datagram + data.draw(st.binary(min_size=1, max_size=50))) is None
    assert server.open(datagram) == message


@given(st.binary(max_size=MOST_BYTES + 50))
@pytest.mark.parametrize("key", KEYS, ids=["plain", "sealed"])
def test_noise_is_refused(key, noise):
    if key is not None:
        pytest.importorskip("cryptography")
    _, server = ends(ChannelOffer(b"notnoise", key))
    assert server.open(noise) is None


@given(st.lists(st.integers(0, 30), max_size=80))
def test_whatever_a_network_does_each_message_comes_once_and_in_order(order):
    client, server = ends(ChannelOffer(CHANNEL, None))
    sent = [client.seal(bytes([n])) for n in range(31)]
    opened = [message[0] for n in order if (message := server.open(sent[n])) is not None]
    assert opened == sorted(set(opened))


def test_the_layout_is_that_of_the_page(sealed):
    """docs/wire.md: written out again here, with the primitive alone."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    client, server = ends(sealed)
    client.seal(b"the first")
    head = CHANNEL + (2).to_bytes(8, "big")
    nonce = (0).to_bytes(4, "big") + (2).to_bytes(8, "big")
    assert client.seal(b"a step") == head + ChaCha20Poly1305(KEYS[1]).encrypt(nonce, b"a step", head)
    head, nonce = CHANNEL + (1).to_bytes(8, "big"), (1).to_bytes(4, "big") + (1).to_bytes(8, "big")
    assert server.seal(b"a reading") == head + ChaCha20Poly1305(KEYS[1]).encrypt(nonce, b"a reading", head)


def test_an_offer_is_read_as_it_was_written_and_nothing_else_is(offer):
    assert ChannelOffer.from_dict(offer.to_dict()) == offer
    told = replace(offer, resend_s=0.05)
    assert ChannelOffer.from_dict(told.to_dict()) == told
    assert ChannelOffer.from_dict({"channel": offer.channel, "key": offer.key}).resend_s == RESEND_S
    dice = random.Random(1)
    bad = [None, {}, [], {"channel": CHANNEL}, {"channel": b"short", "key": None}, {"channel": CHANNEL, "key": b"k"}]
    bad += [{"channel": CHANNEL, "key": None, "resend_s": value} for value in (0.0, -1.0, math.inf, math.nan, 1, "1")]
    bad += [{"channel": dice.randbytes(8), "key": value} for value in (0, "text", dice.randbytes(31))]
    for data in bad:
        with pytest.raises(WireError):
            ChannelOffer.from_dict(data)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("tcp://127.0.0.1:5555", ("127.0.0.1", 5555)),
        ("tcp://[::1]:5555", ("::1", 5555)),
        ("tcp://0.0.0.0:5555", ("0.0.0.0", 5555)),
        ("ipc:///tmp/robot", None),
    ],
)
def test_datagrams_go_where_the_control_socket_is(endpoint, address):
    assert datagram_address(endpoint) == address
