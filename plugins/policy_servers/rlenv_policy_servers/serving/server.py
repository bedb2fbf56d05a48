"""Make the service of a policy's file, and open the server of a dialect."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hal import RobotError, Spec
from rlenv_policy_servers.key_mapping import KeyMapping, own_names
from rlenv_policy_servers.policy_file import PolicyFile, parse_address, read_policy_file
from rlenv_policy_servers.serving.service import PolicyService
from rlenv_robot.policies.chunks import ChunkPredictor, HasChunkPredictor
from rlenv_robot.policies.policy import SavedPolicy, load_policy
from rlenv_robot.registry import task as registered_task
from rlenv_robot.robot_models import robot_model_of

__all__ = ["PolicyServer", "make_service", "open_server"]


class PolicyServer(Protocol):
    """A server of one dialect."""

    port: int

    def serve(self) -> None:
        """Answer clients until `close` is called."""
        ...

    def close(self) -> None:
        """Stop answering. Safe to call more than once."""
        ...


def make_service(
    policy: str | Path,
    task: str | None,
    dialect: str,
    *,
    keys: str | Path | None = None,
    token: str = "",
    most_clients: int = 4,
) -> PolicyService:
    """Return the service of a policy's file.

    Args:
        policy: the policy's file.
        task: the name of the task whose observations and actions the policy has; None for a policy of a data set, which
            has those of its set (``rlenv-robot imitate``).
        dialect: ``openpi``, ``groot`` or ``lerobot``.
        keys: a policy file with the clients' keys; None takes the names of the fields.
        token: what clients must send; empty admits every client.
        most_clients: largest number of clients at a time.

    Raises:
        SpecMismatch: the policy or the keys don't fit the task.
        RobotError: a file can't be read, or the policy is not of a data set, and there is no task.
    """
    served = _of_task(task) if task is not None else _of_set(policy)
    observation, action = served.observation, served.action
    if keys is None:
        sent, received, field = own_names(observation, action, dialect)
        server = f"{dialect}://127.0.0.1"
        settings = PolicyFile(server, 1, prompt_field=field, observation=list(sent), action=list(received))
    else:
        settings = read_policy_file(keys)
    mapping = KeyMapping(settings, observation, action, serving=True)
    if dialect == "lerobot" and set(mapping.answers.widths) != {"action"}:
        raise RobotError(f"{keys}: clients of LeRobot take their actions from the one key 'action'")

    def load() -> SavedPolicy | ChunkPredictor:
        loaded = load_policy(policy)
        loaded.check(observation, action)
        if _takes_history(loaded):  # a client may not ask at each frame, so it gets one action for each observation
            return loaded
        return (isinstance(loaded, HasChunkPredictor) and loaded.chunk_predictor()) or loaded

    first = load()
    metadata = {
        "policy": Path(policy).name,
        "task": served.name,
        "control_hz": served.rate_hz,
        "horizon": first.length if isinstance(first, ChunkPredictor) else 1,
    }
    if isinstance(first, ChunkPredictor):
        first.close()
    return PolicyService(load, mapping, observation, action, metadata, token=token, most_clients=most_clients)


class _Served(NamedTuple):
    name: str
    observation: Spec
    action: Spec
    rate_hz: float | None


def _of_task(name: str) -> _Served:
    task = registered_task(name)
    return _Served(task.name, task.observation, task.action, robot_model_of(task).load_spec().rate_hz)


def _of_set(path: str | Path) -> _Served:
    """Return what a policy's file says of its data set.

    Raises:
        RobotError: it is not the policy of a data set.
    """
    policy: Any = load_policy(path)
    about = getattr(policy, "data_set", None)
    if not about:
        raise RobotError(f"{path} was not made of a data set by `rlenv-robot imitate`; name its task with --task")
    return _Served(str(about["name"]), policy.observation, policy.action, about["rate_hz"])


def _takes_history(policy: SavedPolicy) -> bool:
    return getattr(getattr(policy, "execution", None), "history", 1) > 1


def open_server(
    service: PolicyService, dialect: str, address: str, has_token: bool, max_bytes: int, clients: int
) -> PolicyServer:
    """Return the server of a dialect, which listens but does not answer before `PolicyServer.serve`.

    Args:
        service: the policy and its clients.
        dialect: ``openpi``, ``groot`` or ``lerobot``.
        address: ``HOST:PORT`` or ``HOST``; empty is loopback with the maker's port.
        has_token: whether clients need a token, without which only loopback is allowed.
        max_bytes: largest message that is accepted.
        clients: largest number of clients at a time.

    Raises:
        ValueError: the address is not understood, or other machines could reach it and there is no token.
        OSError: the address can't be listened on.
    """
    place = parse_address(f"{dialect}://{address or '127.0.0.1'}")
    if not has_token and not _is_loopback(place.host):
        raise ValueError(
            f"--address is {address!r}, which other machines can reach; give --token-file, or stay on 127.0.0.1"
        )
    if dialect == "openpi":
        from rlenv_policy_servers.serving.openpi import OpenPiServer

        return OpenPiServer(service, place.host.strip("[]"), place.port, max_bytes)
    if dialect == "groot":
        from rlenv_policy_servers.serving.groot import GrootServer

        return GrootServer(service, place.host, place.port, max_bytes)
    from rlenv_policy_servers.serving.lerobot import LeRobotServer

    return LeRobotServer(service, place.host, place.port, max_bytes, clients)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
