"""Samples arrive with their writers, and a second writer shows at once."""

from __future__ import annotations

import platform
import sys
import time

import pytest

from hal.errors import RobotError
from rlenv_unitree import channel as module
from rlenv_unitree.channel import Channel, Reader, Sample, wait_until
from rlenv_unitree.crc import is_valid, sign
from rlenv_unitree.messages import GO_LOW_CMD, TOPIC_LOW_CMD, Record, go_command
from rlenv_unitree.rpc import CHECK_MODE, MOTION_SWITCHER, NOT_IMPLEMENTED, Client, Service

TOPIC = TOPIC_LOW_CMD


def command(gpio: int = 0) -> Record:
    record = go_command()
    record["gpio"] = gpio
    sign(record)
    return record


def received(reader: Reader, count: int) -> list[Sample]:
    samples: list[Sample] = []
    wait_until(lambda: samples.extend(reader.take()) or len(samples) >= count, 3.0)
    return samples


def test_all_commands_of_a_burst_arrive_in_order(channel: Channel, other_channel: Channel) -> None:
    reader, writer = channel.reader(TOPIC, GO_LOW_CMD), other_channel.writer(TOPIC, GO_LOW_CMD)
    assert writer.wait_for_reader(3.0)
    before = time.time_ns(), time.monotonic_ns()
    for number in range(20):
        writer.write(command(number))
    samples = received(reader, 20)
    assert [int(sample.record["gpio"]) for sample in samples] == list(range(20))
    assert all(is_valid(sample.record) for sample in samples)
    assert all(before[0] <= sample.sent_ns <= time.time_ns() for sample in samples)
    assert all(before[1] <= sample.arrived_ns <= time.monotonic_ns() for sample in samples)


def test_a_reader_keeps_the_newest_samples_and_gives_all_of_them(channel: Channel, other_channel: Channel) -> None:
    reader, writer = channel.reader(TOPIC, GO_LOW_CMD, depth=300), other_channel.writer(TOPIC, GO_LOW_CMD)
    assert writer.wait_for_reader(3.0)
    for number in range(310):
        record = command()
        record["reserve"] = number
        writer.write(record)
    time.sleep(1.0)
    assert [int(sample.record["reserve"]) for sample in reader.take()] == list(range(10, 310))
    assert reader.take() == []


def test_own_commands_are_left_out_and_a_second_writer_shows_within_20_ms(
    channel: Channel, other_channel: Channel
) -> None:
    own, reader = channel.writer(TOPIC, GO_LOW_CMD), channel.reader(TOPIC, GO_LOW_CMD, others_only=True)
    everything = channel.reader(TOPIC, GO_LOW_CMD)
    second = other_channel.writer(TOPIC, GO_LOW_CMD)
    assert own.wait_for_reader(3.0)
    assert second.wait_for_reader(3.0)
    own.write(command())
    assert len(received(everything, 1)) == 1
    assert reader.take() == []
    delays = []
    for _ in range(20):
        own.write(command())
        sent = time.monotonic_ns()
        second.write(command())
        (sample,) = received(reader, 1)
        delays.append((sample.arrived_ns - sent) / 1e6)
    assert sorted(delays)[15] < 20.0  # a busy machine pauses for longer now and then
    assert len({sample.writer for sample in received(everything, 40)}) == 2
    assert "participant" in reader.describe(sample.writer)


def test_writers_may_leave(channel: Channel) -> None:
    reader = channel.reader(TOPIC, GO_LOW_CMD)
    with Channel("lo", channel.domain) as leaving:
        writer = leaving.writer(TOPIC, GO_LOW_CMD)
        assert writer.wait_for_reader(3.0)
        writer.write(command())
        (sample,) = received(reader, 1)
        assert reader.writers() == [sample.writer]
    assert wait_until(lambda: not reader.writers(), 3.0)
    assert reader.take() == []
    with pytest.raises(RobotError, match="DDS did not send"):
        writer.write(command())
    leaving.close()


def test_writers_that_left_are_described_too(channel: Channel) -> None:
    assert channel.reader(TOPIC, GO_LOW_CMD).describe(2**63 + 5) == f"writer {2**63 + 5:x}, which has left"


def test_interfaces_and_domains_that_can_not_be_used_are_refused(channel: Channel) -> None:
    for wrong, message in (
        (Channel("no-such-port"), "no network interface 'no-such-port' here, but .*lo"),
        (Channel("lo", 231), "allowed are 0 to 230"),
    ):
        with pytest.raises(RobotError, match=message):
            wrong.open()
    with pytest.raises(RobotError, match="is not open: call open"):
        Channel("lo").writer(TOPIC, GO_LOW_CMD)


def test_a_domain_has_one_interface_in_a_process(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_check", lambda *_: None)
    with pytest.raises(RobotError, match=f"uses DDS domain {channel.domain} on lo"):
        Channel("eth0", channel.domain).open()


@pytest.mark.parametrize(("machine", "advice"), [
    ("x86_64", r"pip install 'rlenv-robot\[unitree\]'$"),
    ("aarch64", "no wheel for aarch64 .* CYCLONEDDS_HOME="),
])  # fmt: skip
def test_a_missing_cyclonedds_is_reported_with_the_command(
    monkeypatch: pytest.MonkeyPatch, machine: str, advice: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cyclonedds"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclonedds", None)
    module.cyclonedds.cache_clear()
    try:
        with pytest.raises(RobotError, match=advice):
            Channel("lo").open()
    finally:
        module.cyclonedds.cache_clear()


class Switcher:
    """Answer as a motion switcher in a given mode, whenever the client looks for an answer."""

    def __init__(self, channel: Channel) -> None:
        self.calls: list[tuple[int, str]] = []
        self.service = Service(channel, MOTION_SWITCHER, self.handle)

    def handle(self, api_id: int, parameter: str) -> tuple[int, str]:
        self.calls.append((api_id, parameter))
        return (0, '{"form": "0", "name": "normal"}') if api_id == CHECK_MODE else (NOT_IMPLEMENTED, "")


def test_calls_are_answered(channel: Channel, other_channel: Channel) -> None:
    import threading

    switcher, done = Switcher(channel), threading.Event()

    def serve() -> None:
        while not done.wait(0.002):
            switcher.service.poll()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = Client(other_channel, MOTION_SWITCHER)
        assert client.call(CHECK_MODE) == (0, '{"form": "0", "name": "normal"}')
        assert client.call(1999, '{"name": "ai"}') == (NOT_IMPLEMENTED, "")
    finally:
        done.set()
        thread.join()
    assert switcher.calls == [(CHECK_MODE, "{}"), (1999, '{"name": "ai"}')]


def test_a_service_that_does_not_answer_is_an_error_within_its_time(channel: Channel, other_channel: Channel) -> None:
    client = Client(channel, "sport")
    began = time.monotonic()
    with pytest.raises(RobotError, match=r"did not answer call 1001 within 0.2 s \(no such service was found\)"):
        client.call(1001, timeout_s=0.2)
    Service(other_channel, "sport", lambda *_: (0, ""))
    assert time.monotonic() - began < 1.0
