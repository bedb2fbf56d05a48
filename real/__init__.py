"""A robot on the network: a server that serves any robot, and a client that is one."""

from real.client.cameras import RemoteCameras
from real.client.connection import Connection
from real.client.robot import RemoteRobot
from real.control.loop import ControlLoop
from real.protocol.messages import Message, MessageKind
from real.server.server import Server
from real.telemetry.images import ImageListener
from real.telemetry.state import Snapshot, Watcher

__all__ = [
    "Connection",
    "ControlLoop",
    "ImageListener",
    "Message",
    "MessageKind",
    "RemoteCameras",
    "RemoteRobot",
    "Server",
    "Snapshot",
    "Watcher",
]
