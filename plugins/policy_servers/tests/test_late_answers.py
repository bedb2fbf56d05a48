"""A lying server answers late, twice, out of order, and with another episode's actions; none of it is executed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hal import Field, RobotSpec, Spec
from plugins.policy_servers.tests.test_faults import client
from rlenv_policy_servers.client import ServerPolicy
from rlenv_policy_servers.dialects.codecs import pack_openpi, unpack_openpi
from rlenv_policy_servers.part import ActionPart, ObservationPart
from rlenv_robot.action_limiter import ActionLimiter
from rlenv_robot.policies.chunked_policy import ChunkedPolicy, SilentPolicy

pytest.importorskip("websockets", reason="policy servers of openpi need websockets")
pytestmark = [pytest.mark.slow]

LENGTH, FRAME_S, TIMEOUT_S = 8, 0.004, 0.02
STAMP = Field("stamp", (2,), "float32", 0, 1e6, "1", "episode and frame", ("episode", "frame"))
OBSERVATION = Spec("observation", (STAMP,))
ACTION = Spec("action", (Field("echo", (2,), "float32", 0, 1e6, "1", "episode and frame", ("episode", "frame")),))
LIES = ("late", "twice", "earlier", "other_episode")


class LyingServer:
    """A server of openpi that answers each observation's own stamp, or plants a stamp that must not be executed.

    Attributes:
        planted: number of answers that must not be executed, by the kind of lie.
        fresh: number of honest answers in time.
    """

    def __init__(self, seed: int, share: float) -> None:
        self.planted = dict.fromkeys(LIES, 0)
        self.fresh = 0
        self._random, self._share, self._stamps = random.Random(seed), share, list[np.ndarray]()
        self._lock = threading.Lock()

    def talk(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            connection.send(pack_openpi({}))
            for frame in connection:
                self._answer(connection, np.array(unpack_openpi(frame)["stamp"]))  # type: ignore[index]
        except (ConnectionClosed, OSError):
            pass

    def _answer(self, connection: Any, stamp: np.ndarray) -> None:
        with self._lock:
            self._stamps.append(stamp)
            lie = self._random.choice(LIES) if self._random.random() < self._share else ""
            old = self._random.choice(self._stamps)
        if lie == "late":  # after the deadline; over a session that the client has closed
            time.sleep(TIMEOUT_S * 1.5)
            self._plant(connection, stamp, "late")
        elif lie == "earlier":  # the answers of earlier requests, after the deadline, before that of this one
            time.sleep(TIMEOUT_S * 1.5)
            self._plant(connection, old, "earlier")
        elif lie == "other_episode":
            time.sleep(TIMEOUT_S * 1.5)
            self._plant(connection, np.array([max(0, stamp[0] - 1), stamp[1]], np.float32), "other_episode")
        else:
            self.fresh += 1
            frame = answered(stamp)
            connection.send(frame)
            for _ in range(5 if lie == "twice" else 0):
                self.planted["twice"] += 1
                connection.send(frame)

    def _plant(self, connection: Any, stamp: np.ndarray, lie: str) -> None:
        for _ in range(5):
            self.planted[lie] += 1
            connection.send(answered(stamp))


def answered(stamp: np.ndarray) -> bytes:
    """Return a chunk of 8 actions: the episode, and the frame to which each action leads."""
    actions = np.stack([np.full(LENGTH, stamp[0]), stamp[1] + np.arange(1, LENGTH + 1)], axis=1)
    timing = {"infer_ms": time.perf_counter() * 1e3}
    return pack_openpi({"actions": actions.astype(np.float32), "server_timing": timing})


@contextmanager
def lying(server: LyingServer) -> Iterator[int]:
    from websockets.sync.server import serve

    with serve(server.talk, "127.0.0.1", 0, compression=None, close_timeout=0.1) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield listening.socket.getsockname()[1]
        finally:
            listening.shutdown()
            thread.join(5)


def test_no_planted_answer_is_executed() -> None:
    """Each executed action must carry this episode and this frame: the mark of an answer to a request of this session.

    ``RLENV_ROBOT_PLANTED`` sets the number of planted answers; the documentation's figure is of 10,000.
    """
    wanted = int(os.environ.get("RLENV_ROBOT_PLANTED", "600"))
    server, executed, wrong, episode = LyingServer(seed=1, share=0.5), 0, list[tuple[Any, Any]](), 0
    measured = Field("measured", (2,), "float32", 0, 1e6, "1", "episode and frame")
    sensors = Spec("sensors", (measured,))
    robot = RobotSpec("echo", sensors, ACTION, rate_hz=1 / FRAME_S, measured_by={"echo": "measured"})
    still = {"measured": np.zeros(2, np.float32)}
    limiter = ActionLimiter(robot, ACTION, lambda action, _: action, lambda: still)
    with lying(server) as port:
        predictor: ServerPolicy = client(
            f"openpi://127.0.0.1:{port}", horizon=LENGTH, timeout_s=TIMEOUT_S, connect_s=5.0, prompt_field="",
            observation=[ObservationPart(key="stamp", field="stamp")],
            action=[ActionPart(key="actions", field="echo")],
        )  # fmt: skip
        policy = ChunkedPolicy(predictor, limiter, hold_frames=1000)
        policy.check(OBSERVATION, ACTION)
        while sum(server.planted.values()) < wanted:
            episode += 1
            policy.reset()
            held = np.zeros(2)
            for frame in range(random.Random(episode).randint(20, 60)):
                begun = time.monotonic()
                try:
                    action = policy.act({"stamp": np.array([episode, frame], np.float32)})["echo"]
                except SilentPolicy:
                    break
                fresh = policy.answers >= 0
                if fresh:
                    executed += 1
                    held = action
                    if action.tolist() != [episode, frame + 1]:
                        wrong.append((action.tolist(), (episode, frame + 1)))
                else:
                    assert action.tolist() == held.tolist()
                time.sleep(max(0.0, FRAME_S - (time.monotonic() - begun)))
        policy.close()
    print(f"{sum(server.planted.values())} planted {server.planted}, {server.fresh} fresh, {executed} executed, "
          f"{len(wrong)} wrong, {episode} episodes")  # fmt: skip
    assert not wrong, wrong[:5]
    assert all(server.planted.values())
    assert executed > server.fresh
