"""Put a robot on the network: a server for any robot, and a client that is itself a robot."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from real.client.cameras import RemoteCameras
    from real.client.connection import ClientSettings, Connection
    from real.client.robot import RemoteRobot
    from real.control.loop import ControlLoop
    from real.control.observer import ServerObserver
    from real.control.settings import LoopSettings
    from real.protocol.messages import Message, MessageKind
    from real.server.server import Server, ServerSettings
    from real.telemetry.images import ImageListener
    from real.telemetry.state import Snapshot, Watcher

__all__ = [
    "ClientSettings",
    "Connection",
    "ControlLoop",
    "ImageListener",
    "LoopSettings",
    "Message",
    "MessageKind",
    "RemoteCameras",
    "RemoteRobot",
    "Server",
    "ServerObserver",
    "ServerSettings",
    "Snapshot",
    "Watcher",
]

_MODULES = {
    "ClientSettings": "real.client.connection",
    "Connection": "real.client.connection",
    "ControlLoop": "real.control.loop",
    "ImageListener": "real.telemetry.images",
    "LoopSettings": "real.control.settings",
    "Message": "real.protocol.messages",
    "MessageKind": "real.protocol.messages",
    "RemoteCameras": "real.client.cameras",
    "RemoteRobot": "real.client.robot",
    "Server": "real.server.server",
    "ServerObserver": "real.control.observer",
    "ServerSettings": "real.server.server",
    "Snapshot": "real.telemetry.state",
    "Watcher": "real.telemetry.state",
}
"""Each name is imported when it is first used, so that a client loads no server."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'real' has no attribute {name!r}, it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
