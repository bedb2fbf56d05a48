"""Extensions of a server: from a profile's table to a context around the serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from hal import ProfileError
from real.server.server import Server
from rlenv_robot.config.profile import Profile, RobotSection, ServeSection
from rlenv_robot.serving import robot_server
from rlenv_robot.serving.extension import ServerExtension, attached, load_extensions
from tests.fakes import Integrator, until


class Recorded:
    """An extension that records its beginning and its end."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name, self.events = name, events

    @contextmanager
    def attach(self, server: Server, announce: Callable[[str], None]) -> Iterator[None]:
        assert server.address.startswith("tcp://"), "the server listens already"
        announce(f"{self.name} watches")
        self.events.append(f"+{self.name}")
        try:
            yield
        finally:
            self.events.append(f"-{self.name}, stopped: {server.stopped}")


def test_extensions_end_after_the_server_and_the_last_one_first(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    both = [Recorded("a", events), Recorded("b", events)]
    monkeypatch.setattr(robot_server, "load_extensions", lambda profile: both)

    class Once:
        def wait(self, seconds: float) -> bool:
            events.append("serving")
            return True

    profile = Profile(robot=RobotSection(where="twin"), serve=ServeSection(address="tcp://127.0.0.1:*", lower_s=0.0))
    robot_server.serve(profile, until=Once(), announce=events.append)
    kept = [event for event in events if event[0] in "+-" or event == "serving" or event.endswith("watches")]
    ended = "stopped: the server was closed"
    assert kept == ["a watches", "+a", "b watches", "+b", "serving", f"-b, {ended}", f"-a, {ended}"]


def test_a_second_extension_that_fails_ends_the_first() -> None:
    events: list[str] = []

    class Broken:
        def attach(self, server: Server, announce: Callable[[str], None]) -> object:
            raise ValueError("no device")

    extensions = [Recorded("a", events), cast("ServerExtension", Broken())]
    with (
        Server(Integrator(), watchdog_s=0.5) as server,
        pytest.raises(ValueError, match="no device"),
        attached(extensions, server, lambda _: None),
    ):
        raise AssertionError("not reached")
    assert events == ["+a", "-a, stopped: None"]


def test_an_unknown_extension_is_named_with_its_key() -> None:
    with pytest.raises(ProfileError) as error:
        load_extensions(Profile(extensions={"unheard-of": {}}))
    assert error.value.key == "extensions.unheard-of"
    assert load_extensions(Profile()) == []


def test_a_server_is_stopped_and_asked_from_its_own_process() -> None:
    with Server(Integrator(), watchdog_s=0.5) as server:
        until(lambda: server.loop_silence(0.5) is None)
        assert server.stop("a device says so") is None
        assert server.stopped == "a device says so"
    until(lambda: server.loop_silence(0.15) is not None)  # its thread has ended
