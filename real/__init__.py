"""A robot on the network: a server that serves any robot, and a client that is one."""

from real.link import Connection
from real.loop import ControlLoop
from real.pictures import ImageListener
from real.remote import RemoteRobot
from real.remote_cameras import RemoteCameras
from real.server import Server
from real.telemetry import Snapshot, Watcher
from real.wire import Message, MessageKind

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
