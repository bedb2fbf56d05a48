"""Predict chunks by asking a policy server: `load_server_policy` loads a policy file ``NAME.toml``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hal import ConnectionLost, RobotError, Spec, SpecError, SpecMismatch
from rlenv_policy_servers.dialects.session import Session, SessionSettings
from rlenv_policy_servers.key_mapping import KeyMapping, own_names
from rlenv_policy_servers.policy_file import PolicyFile, read_policy_file, read_token
from rlenv_robot.policies.chunks import ChunkContext

__all__ = ["ServerPolicy", "load_server_policy"]

_CLOSE_S = 5.0


def load_server_policy(path: str | Path) -> ServerPolicy:
    """Load a policy file ``NAME.toml``. The server is reached first by `ServerPolicy.check`.

    Raises:
        ProfileError: a key or value of the file is wrong.
        RobotError: the file or its token can't be read.
    """
    settings = read_policy_file(path)
    file = Path(path).parent / settings.token_file if settings.token_file else ""
    return ServerPolicy(settings, read_token(file, settings.token_env))


class ServerPolicy:
    """A `rlenv_robot.policies.chunks.ChunkPredictor` that asks a policy server.

    Any error closes the session with the server, so that no late answer can be taken for a fresh one. So does `reset`,
    so that no answer of an earlier episode can. The next `predict` opens another session.

    Args:
        settings: the policy file.
        token: the server's token; empty for none.
    """

    def __init__(self, settings: PolicyFile, token: str = "") -> None:
        self.settings, self._token = settings, token
        self._mapping: KeyMapping | None = None
        self._session: Session | None = None
        self._closed = False
        self._using = threading.Lock()

    @property
    def length(self) -> int:
        """The largest number of actions in a chunk: ``horizon`` of the file."""
        return self.settings.horizon

    @property
    def clipped(self) -> int:
        """Number of values that parts with ``outside = "clip"`` have changed so far."""
        return 0 if self._mapping is None else self._mapping.answers.clipped

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs that don't fit the file, and a server whose description does not fit it.

        Raises:
            SpecMismatch: the error lists every difference.
            ConnectionLost: the server can't be reached.
            DeadlineExceeded: the server does not answer in time.
        """
        settings = self.settings
        if not settings.observation:
            sent, received, field = own_names(observation, action, settings.address.scheme.removesuffix("s"))
            settings = replace(settings, observation=list(sent), action=list(received))
            if not settings.prompt and not settings.prompt_field:
                settings = replace(settings, prompt_field=field)
        self._mapping = KeyMapping(settings, observation, action)
        with self._using:
            session = self._opened()
            try:
                self._compare(session, observation, action)
                check_keys = getattr(session, "check", None)
                if check_keys is not None:
                    zeros = {field.name: field.nothing for field in observation}
                    keys, widths = self._mapping.requests.request(zeros), self._mapping.answers.widths
                    check_keys(keys, widths, bool(settings.prompt or settings.prompt_field))
            except BaseException:
                self._drop()
                raise

    def _compare(self, session: Session, observation: Spec, action: Spec) -> None:
        """Compare the specs with the server's, if it is ours and the file has no mapping."""
        own = session.description.get("rlenv_robot")
        if self.settings.observation:
            return
        if not isinstance(own, dict) or "observation_spec" not in own:
            raise SpecMismatch(
                f"{self.settings.server} does not describe its keys as a server of this project does",
                ["the policy file has no [[observation]] and [[action]]; write them (docs/policy-servers.md)"],
            )
        try:
            theirs = Spec.from_dict(own["observation_spec"]), Spec.from_dict(own["action_spec"])
        except (SpecError, KeyError, TypeError) as error:
            raise RobotError(f"{self.settings.server}: its description is damaged: {error!r:.200}") from None
        problems = [f"observation: {line}" for line in theirs[0].difference(observation)]
        problems += [f"action: {line}" for line in theirs[1].difference(action)]
        if problems:
            raise SpecMismatch(f"{self.settings.server} serves a policy of another task", problems)

    def reset(self) -> None:
        """Close the session, which ends the server's episode."""
        with self._using:
            self._drop()

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> Mapping[str, np.ndarray]:
        """Return the chunk of the server's answer: field -> actions of shape (K, *field shape).

        Raises:
            DeadlineExceeded: no answer came in time.
            ConnectionLost: the server has ended the session, or can't be reached, or `close` was called.
            RobotError: the server has refused the observation, or its answer is not a chunk of the action's spec.
        """
        mapping = self._mapping
        if mapping is None:
            raise RobotError("call check() with the specs of the task before predict()")
        field = mapping.prompt_field
        prompt = str(observation[field]) if field else self.settings.prompt
        request = mapping.requests.request(observation)
        with self._using:
            session = self._session or self._opened()
            try:
                answer = session.ask(request, prompt, self.settings.timeout_s)
                return mapping.answers.chunk(answer, observation, self.settings.horizon)
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """Close the session, and end a wait of another thread in `predict`. Safe to call more than once."""
        self._closed = True
        session = self._session
        if session is not None:
            session.abort()
        if self._using.acquire(timeout=_CLOSE_S):
            try:
                self._drop()
            finally:
                self._using.release()

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> Session:
        if self._closed:
            raise ConnectionLost(f"{self.settings.server}: this policy was closed")
        self._drop()
        settings, address = self.settings, self.settings.address
        needs = SessionSettings(
            address, self._token, settings.connect_s, settings.max_mib << 20, settings.prompt_key, self._setup()
        )
        self._session = _session(address.scheme, needs)
        return self._session

    def _setup(self) -> dict[str, Any]:
        """Return LeRobot's ``RemotePolicyConfig``, with the features of ``hw_to_dataset_features``."""
        assert self._mapping is not None
        features: dict[str, Any] = {}
        described = self._mapping.requests.description()
        states = {key: one for key, one in described.items() if len(one["shape"]) < 3}
        if states:
            features["observation.state"] = {"dtype": "float32", "shape": [len(states)], "names": list(states)}
        for key, one in described.items():
            if len(one["shape"]) == 3:
                names = ["height", "width", "channels"]
                features[f"observation.images.{key}"] = {"dtype": "image", "shape": one["shape"], "names": names}
        return {
            "policy_type": self.settings.policy_type, "pretrained_name_or_path": self.settings.policy,
            "lerobot_features": features, "actions_per_chunk": self.settings.horizon, "device": self.settings.device,
            "rename_map": {},
        }  # fmt: skip


def _session(scheme: str, settings: SessionSettings) -> Session:
    if scheme in ("openpi", "openpis"):
        from rlenv_policy_servers.dialects.openpi import OpenPiSession

        return OpenPiSession(settings)
    if scheme == "groot":
        from rlenv_policy_servers.dialects.groot import GrootSession

        return GrootSession(settings)
    from rlenv_policy_servers.dialects.lerobot import LeRobotSession

    return LeRobotSession(settings)
