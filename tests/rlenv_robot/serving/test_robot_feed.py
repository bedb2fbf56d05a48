"""The feed: the newest state and images, episodes as they end, and a server that is lost and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from hal import Image
from real import RemoteRobot, Server
from rlenv_robot.serving.robot_feed import EpisodeWatch, RobotFeed
from tests.fakes import Integrator, until


@pytest.fixture
def robot() -> Integrator:
    return Integrator()


@pytest.fixture
def served(robot: Integrator) -> Iterator[Server]:
    with Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=100, watchdog_s=1.0) as server:
        yield server


@pytest.fixture
def feed(served: Server) -> Iterator[RobotFeed]:
    feed = RobotFeed(served.address)
    feed.start(lambda _: None)
    yield feed
    feed.close()


def test_the_newest_state_arrives_with_the_ages_of_the_sensors(served: Server, feed: RobotFeed) -> None:
    until(lambda: not feed.look.problem and feed.look.snapshot is not None)
    look = feed.look
    assert look.spec is not None
    assert look.spec.name == "integrator"
    remote = RemoteRobot(served.address)
    remote.reset({})
    remote.step({"target": np.float32([0.25, 0.0])})
    until(lambda: feed.look.snapshot is not None and feed.look.snapshot.applied.get("target", [0])[0] == 0.25)
    snapshot = feed.look.snapshot
    assert snapshot is not None
    assert type(snapshot.status["stop_number"]) is int
    remote.stop("enough")
    until(lambda: len(feed.episodes) == 1)
    (episode,) = feed.episodes
    assert (episode.number, episode.state, episode.why) == (1, "stopped", "enough")
    assert episode.holder.startswith("process ")
    remote.close()


@pytest.mark.slow
def test_a_server_that_is_lost_is_said_to_be_and_found_again(robot: Integrator) -> None:
    with Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=50) as server:
        address, feed = server.address, RobotFeed(server.address)
        feed.start(lambda _: None)
        until(lambda: not feed.look.problem and feed.look.snapshot is not None)
    try:
        until(lambda: "silent" in feed.look.problem or "no answer" in feed.look.problem, 20.0)
        with Server(Integrator(), address=address, telemetry="tcp://127.0.0.1:*", telemetry_hz=50):
            until(lambda: not feed.look.problem, 20.0)
    finally:
        feed.close()


def test_a_server_without_telemetry_says_how_to_get_it(robot: Integrator) -> None:
    with Server(robot) as server:
        feed = RobotFeed(server.address)
        feed.start(lambda _: None)
        until(lambda: "serve.telemetry" in feed.look.problem)
        feed.close()


def test_an_episode_lasts_as_long_as_the_robot_runs() -> None:
    watch = EpisodeWatch()
    states = ["ready", "running", "running", "holding", "holding", "running", "stopped", "ready"]
    finished = [watch.see(state, f"why {at}", "ann", float(at), 1000.0 + at) for at, state in enumerate(states)]
    ended = [episode for episode in finished if episode is not None]
    assert [(e.number, e.began_wall_s, e.seconds, e.state) for e in ended] == [
        (1, 1001.0, 2.0, "holding"),
        (2, 1005.0, 1.0, "stopped"),
    ]


def test_images_are_the_newest_of_each_camera(monkeypatch: pytest.MonkeyPatch, served: Server) -> None:
    feed, shown = RobotFeed(served.address), []
    image = Image(b"\xff\xd8 a picture", "jpeg", 5)

    class Listener:
        def __enter__(self) -> Listener:
            return self

        def __exit__(self, *_: object) -> None:
            shown.append("closed")

        def newest(self) -> dict[str, Image]:
            feed._closing.set()
            return {"wrist": image}

    feed._on_news = shown.append
    feed._listen(Listener(), threading.Event())  # type: ignore[arg-type]
    assert feed.images == {"wrist": image}
    assert shown == ["image", "closed"]


@pytest.mark.slow
def test_a_server_that_never_answers_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    feed = RobotFeed("tcp://127.0.0.1:9")
    attempts = list[str]()
    feed.start(attempts.append)
    until(lambda: len(attempts) >= 2, 60.0)
    feed.close()
    (told,) = caplog.messages
    assert told.startswith("tcp://127.0.0.1:9 can't be followed, and is tried again until it can: ")
