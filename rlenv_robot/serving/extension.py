"""Attach extensions, which packages provide, to a running server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, cast

from hal import ProfileError
from rlenv_robot.config.plugins import PluginTable, unknown_name
from rlenv_robot.robot_models import build

if TYPE_CHECKING:
    from real.server.server import Server
    from rlenv_robot.config.profile import Profile

__all__ = ["ServerExtension", "attached", "load_extensions"]


class ServerExtension(Protocol):
    """An object that works beside a server, in its process, such as one that drives a device which watches it."""

    def attach(self, server: Server, announce: Callable[[str], None]) -> AbstractContextManager[object]:
        """Return a context that is active while the server serves. It ends after the server has closed its robot.

        Args:
            server: the server, which already listens. `Server.loop_silence`, `Server.stop` and `Server.lifecycle` are
                for any thread.
            announce: receives a line for each event that a person waits for.
        """
        ...


def load_extensions(profile: Profile) -> list[ServerExtension]:
    """Create the extension of each table ``[extensions.NAME]`` of a profile, without touching its device.

    An entry point of the group ``rlenv_robot.server_extensions`` names a factory, which gets the table's keys as
    keyword arguments.

    Raises:
        ProfileError: no installed package has the name, or a key or value is not allowed.
    """
    table = PluginTable("server extension", "rlenv_robot.server_extensions", {})
    loaded = []
    for name, options in profile.extensions.items():
        key = f"extensions.{name}"
        if name not in table:
            raise ProfileError(profile.file, key, str(unknown_name(name, "extension", table.names())))
        try:
            factory = cast("Callable[..., ServerExtension]", table.load(name))
            loaded.append(build(factory, name, options))
        except ValueError as error:
            raise ProfileError(profile.file, key, str(error)) from error
    return loaded


@contextmanager
def attached(extensions: list[ServerExtension], server: Server, announce: Callable[[str], None]) -> Iterator[None]:
    """Run the extensions while the context is active; the last one ends first."""
    with ExitStack() as ends:
        for extension in extensions:
            ends.enter_context(extension.attach(server, announce))
        yield
