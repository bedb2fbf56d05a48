"""Read the policy file ``NAME.toml`` of a policy server: its address, its instruction, and its keys."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from annotated_types import Gt, Interval

from hal import ProfileError, RobotError
from rlenv_policy_servers.part import ActionPart, ObservationPart
from rlenv_robot.config.validation import validate
from rlenv_robot.policies.budget import HEADER_BYTES, read_within

__all__ = ["DEFAULT_PORTS", "Address", "PolicyFile", "parse_address", "read_policy_file", "read_token"]

DEFAULT_PORTS = {"openpi": 8000, "openpis": 8000, "groot": 5555, "lerobot": 8080}
"""Scheme of an address -> default port of the maker's server; ``openpis`` is openpi over TLS."""
_ADDRESS = re.compile(r"(?P<scheme>[a-z]+)://(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(:(?P<port>\d{1,5}))?/?")


class Address(NamedTuple):
    """The address of a policy server; ``str()`` gives it as text."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The content of a policy file.

    Attributes:
        server: the server's address: ``openpi://``, ``openpis://`` (TLS), ``groot://`` or ``lerobot://`` with a host,
            and a port unless it is the maker's default.
        horizon: number of actions to use from the beginning of each answer; a longer answer is cut.
        prompt: the instruction in words; empty sends none, unless ``prompt_field`` is set.
        prompt_field: field of the observation that holds the instruction; empty sends ``prompt``.
        prompt_key: the server's key of the instruction; empty takes the dialect's: ``prompt``, ``language.task``,
            ``task``.
        timeout_s: time for a server to answer a request, seconds.
        connect_s: time to connect and get the server's description, seconds.
        token_file: file with the server's token; empty for none. A path is relative to the policy file.
        token_env: environment variable with the server's token; empty for none.
        max_mib: largest message that is accepted, MiB.
        policy: LeRobot's name of the policy to load, such as ``user/model``; only for ``lerobot://``.
        policy_type: LeRobot's type of that policy, such as ``smolvla``; only for ``lerobot://``.
        device: the device on which LeRobot's server runs it; only for ``lerobot://``.
        observation: the parts of a request. Without any, the server must be ours, and its keys are the fields' names.
        action: the parts of an answer.
    """

    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid", "strict": True}

    server: str
    horizon: Annotated[int, Interval(ge=1, le=1000)]
    prompt: str = ""
    prompt_field: str = ""
    prompt_key: str = ""
    timeout_s: Annotated[float, Gt(0)] = 2.0
    connect_s: Annotated[float, Gt(0)] = 10.0
    token_file: str = ""
    token_env: str = ""
    max_mib: Annotated[int, Interval(ge=1, le=1024)] = 64
    policy: str = ""
    policy_type: str = ""
    device: str = "cpu"
    observation: list[ObservationPart] = field(default_factory=list)
    action: list[ActionPart] = field(default_factory=list)

    @property
    def address(self) -> Address:
        """The server's address.

        Raises:
            ValueError: the address is not understood.
        """
        return parse_address(self.server)

    def __post_init__(self) -> None:
        if self.prompt and self.prompt_field:
            raise ValueError("prompt_field is set beside prompt; give one of them")
        if self.token_file and self.token_env:
            raise ValueError("token_env is set beside token_file; give one of them")
        if bool(self.observation) != bool(self.action):
            raise ValueError("action and observation belong together: give parts of both, or of neither")
        try:
            parse_address(self.server)
        except ValueError as error:
            raise ValueError(f"server {error}") from None


def parse_address(text: str) -> Address:
    """Return the address that a text describes.

    Raises:
        ValueError: the text is no address of a policy server; the message begins with "is" and the text.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or match["scheme"] not in DEFAULT_PORTS or int(match["port"] or 1) not in range(65536):
        schemes = ", ".join(f"{scheme}://HOST:PORT" for scheme in DEFAULT_PORTS)
        raise ValueError(f"is {text!r:.100}, allowed are {schemes}")
    return Address(match["scheme"], match["host"], int(match["port"] or DEFAULT_PORTS[match["scheme"]]))


def read_policy_file(path: str | Path) -> PolicyFile:
    """Read a policy file.

    Raises:
        ProfileError: a key or value is wrong; the message names file and key.
        RobotError: the file is missing or can't be read.
    """
    path = Path(path)
    try:
        content = read_within(path)
    except OSError as error:
        raise RobotError(f"{path}: can't be read: {error.strerror}") from error
    if len(content) > HEADER_BYTES:
        raise RobotError(f"{path}: has {len(content)} bytes, a policy file may have {HEADER_BYTES}")
    try:
        return validate(PolicyFile, tomllib.loads(content.decode()), str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(str(path), "", f"is not TOML: {error}") from None


def read_token(file: str | Path = "", variable: str = "") -> str:
    """Return the token in a file or in an environment variable; empty if neither is named.

    Raises:
        RobotError: the file or the variable has no token, other users can read the file, or the token has characters
            that no header can carry.
    """
    if not file and not variable:
        return ""
    place = f"the token file {file}" if file else f"the environment variable {variable}"
    try:
        if file and Path(file).stat().st_mode & 0o077:
            raise RobotError(f"{place} can be read by other users; run chmod 600 {file}")
        token = (Path(file).read_text(encoding="utf-8") if file else os.environ.get(variable, "")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RobotError(f"{place} can't be read: {error}") from None
    if not re.fullmatch(r"[\x21-\x7e]{1,1000}", token):
        raise RobotError(f"{place} holds no token: 1 to 1000 printable ASCII characters without spaces are needed")
    return token
