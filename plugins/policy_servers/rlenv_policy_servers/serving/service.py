"""Answer the clients of a policy server: one policy and one episode for each of them."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from hal import RobotError, Spec
from hal.field import JsonDict
from rlenv_policy_servers.key_mapping import KeyMapping
from rlenv_robot.policies.chunks import ChunkContext, ChunkPredictor
from rlenv_robot.policies.policy import SavedPolicy, begin_episode

__all__ = ["Client", "PolicyService"]


class Client:
    """One client's policy, with the state of its episode. One thread at a time may use it.

    Args:
        service: the service that answers.
        policy: a policy of its own.
    """

    def __init__(self, service: PolicyService, policy: SavedPolicy | ChunkPredictor) -> None:
        self._service, self._policy, self._frame_no = service, policy, 0
        self.lock, self.used = threading.Lock(), time.monotonic()
        self.reset()

    def reset(self) -> None:
        """Begin another episode."""
        self._frame_no = 0
        if isinstance(self._policy, ChunkPredictor):
            self._policy.reset()
        else:
            begin_episode(self._policy)

    def answer(self, request: Mapping[str, Any], prompt: str = "") -> dict[str, np.ndarray]:
        """Return the arrays that answer a request: key -> float32 (K, columns), K = 1 unless the policy has chunks.

        Args:
            request: key -> array.
            prompt: the instruction; ignored by a policy that does not observe one.

        Raises:
            RobotError: the request does not fit the mapping, or a value is out of range.
        """
        mapping, self.used = self._service.mapping, time.monotonic()
        observation = mapping.requests.observed(request)
        if mapping.prompt_field:
            field = self._service.observation[mapping.prompt_field]
            observation[field.name] = field.validate(prompt, "observation")
        observation = {name: observation[name] for name in self._service.observation.names}
        if isinstance(self._policy, ChunkPredictor):
            chunk = self._policy.predict(observation, ChunkContext(self._frame_no, {}, 0))
        else:
            chunk = {name: np.asarray(value)[None] for name, value in self._policy.act(observation).items()}
        self._frame_no += 1
        return mapping.answers.answer(chunk, observation)

    def close(self) -> None:
        """Close the policy, if it holds a connection."""
        if isinstance(self._policy, ChunkPredictor):
            self._policy.close()


class PolicyService:
    """A policy, its mapping, and its clients.

    Args:
        load: returns a new policy for each client.
        mapping: converts requests and answers; made with ``serving=True``.
        observation: the spec of observations.
        action: the spec of actions.
        metadata: JSON data about the policy for clients.
        token: what clients must send; empty admits every client.
        most_clients: largest number of clients at a time.
        idle_s: a client that asks for nothing for so long may lose its place to another one, seconds.

    Attributes:
        metadata: the description that clients get.
    """

    def __init__(
        self,
        load: Callable[[], SavedPolicy | ChunkPredictor],
        mapping: KeyMapping,
        observation: Spec,
        action: Spec,
        metadata: JsonDict,
        *,
        token: str = "",
        most_clients: int = 4,
        idle_s: float = 600.0,
    ) -> None:
        self.mapping, self.observation, self.action = mapping, observation, action
        self._load, self._token, self._most, self.idle_s = load, token.encode(), most_clients, idle_s
        self._clients: dict[Hashable, Client] = {}
        self._lock = threading.Lock()
        self.metadata: JsonDict = {
            "version": version("rlenv-robot"), **metadata,
            "request": mapping.requests.description(), "answer": mapping.answers.description(),
            "prompt": mapping.prompt_field,
            "observation_spec": observation.to_dict(), "action_spec": action.to_dict(),
        }  # fmt: skip

    def admits(self, token: str) -> bool:
        """Return whether a token is the right one, or none is needed; compared in constant time."""
        return not self._token or hmac.compare_digest(token.encode("utf-8", "replace"), self._token)

    def client(self, key: Hashable) -> Client:
        """Return the client with a key, and make it if it is new.

        Raises:
            RobotError: too many clients are active, or the policy can't be loaded.
        """
        with self._lock:
            if key not in self._clients:
                self._make_room()
                self._clients[key] = Client(self, self._load())
            return self._clients[key]

    def _make_room(self) -> None:
        if len(self._clients) < self._most:
            return
        oldest = min(self._clients, key=lambda key: self._clients[key].used)
        if time.monotonic() - self._clients[oldest].used < self.idle_s:
            raise RobotError(f"{self._most} clients are connected, which is the limit (--clients); try again later")
        self._clients.pop(oldest).close()

    def knows(self, key: Hashable) -> bool:
        """Return whether a client has this key."""
        return key in self._clients

    def release(self, key: Hashable) -> None:
        """Forget a client."""
        with self._lock:
            client = self._clients.pop(key, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        """Forget all clients."""
        for key in list(self._clients):
            self.release(key)
