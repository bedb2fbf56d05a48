"""A policy, a mapping and servers for the tests of the plug-in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from hal import Field, Spec
from rlenv_policy_servers.key_mapping import KeyMapping, own_names
from rlenv_policy_servers.policy_file import PolicyFile
from rlenv_policy_servers.serving.server import PolicyServer, open_server
from rlenv_policy_servers.serving.service import PolicyService
from rlenv_robot.policies.chunks import ChunkContext

DIALECTS = ("openpi", "groot", "lerobot")
LENGTH = 6

JOINTS = ("pan", "lift", "gripper")
OBSERVATION = Spec("observation", (
    Field("joint_position", (3,), "float32", -2.0, 2.0, "rad", "joint angles", JOINTS),
    Field("overhead_image", (24, 32, 3), "uint8", 0, 255, "1", "camera over the table"),
    Field("instruction", (), "text", unit="1", meaning="what to do", characters=60),
))  # fmt: skip
ACTION = Spec("action", (Field("joint_target", (3,), "float32", -2.0, 2.0, "rad", "goal angles", JOINTS),))


class Ramp:
    """A predictor whose chunk goes up from the observed joints by 0.01 rad an action; the first joint counts frames.

    Attributes:
        made: all instances, for the tests.
    """

    made: ClassVar[list[Ramp]] = []
    length = LENGTH

    def __init__(self) -> None:
        self.asked = self.resets = 0
        self.closed = False
        self.prompts: list[str] = []
        Ramp.made.append(self)

    def check(self, observation: Spec, action: Spec) -> None:
        pass

    def reset(self) -> None:
        self.asked, self.resets = 0, self.resets + 1

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> dict[str, np.ndarray]:
        self.asked += 1
        self.prompts.append(str(observation.get("instruction", "")))
        steps = 0.01 * np.arange(1, LENGTH + 1, dtype=np.float32)[:, None]
        chunk = np.asarray(observation["joint_position"])[:3] + steps
        chunk[:, 0] = 0.1 * self.asked
        return {"joint_target": np.clip(chunk, -2, 2).astype(np.float32)}

    def close(self) -> None:
        self.closed = True


def observation(seed: int = 0, instruction: str = "lift the cube") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "joint_position": rng.uniform(-1, 1, 3).astype(np.float32),
        "overhead_image": rng.integers(0, 256, (24, 32, 3), np.uint8),
        "instruction": np.array(instruction, "<U60"),
    }


def own_settings(dialect: str, **settings: Any) -> PolicyFile:
    sent, received, field = own_names(OBSERVATION, ACTION, dialect)
    return PolicyFile(f"{dialect}://127.0.0.1", 4, prompt_field=field, observation=list(sent), action=list(received),
                      **settings)  # fmt: skip


@contextmanager
def serving(
    dialect: str, policy: Callable[[], Any] = Ramp, settings: PolicyFile | None = None, token: str = "", **limits: Any
) -> Iterator[tuple[PolicyServer, PolicyService]]:
    """Serve a policy on a free port while the context lasts."""
    mapping = KeyMapping(settings or own_settings(dialect), OBSERVATION, ACTION, serving=True)
    metadata = {"policy": "ramp", "task": "test", "control_hz": 30.0, "horizon": LENGTH}
    service = PolicyService(policy, mapping, OBSERVATION, ACTION, metadata, token=token, **limits)
    server = open_server(service, dialect, "127.0.0.1:0", bool(token), 16 << 20, limits.get("most_clients", 4))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server, service
    finally:
        server.close()
        thread.join(10)
        assert not thread.is_alive()


CONTEXT = ChunkContext(0, {}, 0)
