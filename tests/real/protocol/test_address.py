"""Loopback alone, unless there are keys."""

import pytest

from hal import WireError
from real.protocol.messages import check_address


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:5555", "tcp://127.0.0.1:*", "tcp://127.3.2.1:1", "tcp://localhost:80", "tcp://[::1]:5555",
     "ipc:///run/robot"],
)  # fmt: skip
def test_loopback_is_taken(address):
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address",
    ["tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://10.0.0.7:5555", "tcp://robot.local:5555", "tcp://[::]:5555",
     "tcp://eth0:5555"],
)  # fmt: skip
def test_other_machines_are_refused_with_reason(address):
    with pytest.raises(WireError, match=r"other machines.*no keys"):
        check_address(address)
    assert check_address(address, keys=True) == address


@pytest.mark.parametrize(
    "address",
    [
        "localhost:5555",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:99999",
        "tcp://127.0.0.1:0",
        "",
        "ipc://",
        "udp://127.0.0.1:1",
    ],
)
def test_what_is_not_understood_is_shown_how(address):
    with pytest.raises(WireError, match="write it as tcp://127"):
        check_address(address)
