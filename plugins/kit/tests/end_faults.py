"""Faults in rendering, ends of episodes and close, and the check that must see each."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from typing import Any

import numpy as np

from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, _, replaces = planters(FAULTS)


@fault("render")
class RenderingMoves(Sleds):
    def render(self, options: Any = {}) -> Any:  # noqa: B006
        self.position = self.position + np.float32(0.01)


@fault("render")
class RenderingDraws(Sleds):
    def render(self, options: Any = NOTHING) -> Any:
        self.rng.normal()


replaces(Sleds, "render", {
    "RenderingReturns -> render": lambda self, options=NOTHING: np.zeros((4, 4, 3), np.uint8),
})  # fmt: skip


@fault("render")
class RenderingFails(Sleds):
    def render(self, options: Any = {}) -> Any:  # noqa: B006
        raise KeyError("figure")


@fault("render")
class RenderingNeedsOptions(Sleds):
    def render(self, options: Any) -> None:
        del options


@fault("after the end")
class StepsOnAfterTheEnd(Sleds):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        if self.phase == "ended":
            self.phase = "running"
        return super().step(action, extra_info)


replaces(Sleds, "step", {
    "RepeatsTheLastFrame -> after the end": lambda self, action, extra_info=NOTHING: ((self.table(0, 1),
        self.rewarded()) if self.phase == "ended" else Sleds.step(self, action, extra_info)),
})  # fmt: skip


@fault("too early")
class StepsBeforeTheReset(Sleds):
    def __init__(self) -> None:
        super().__init__()
        super().reset({})


@fault("closed")
class ReopensAfterClose(Sleds):
    def close(self) -> None:
        self.phase = "new"


@fault("closed")
class SecondCloseFails(Sleds):
    def close(self) -> None:
        if self.phase == "closed":
            raise RuntimeError("closed")
        super().close()


@fault("leftovers")
class LeavesAThread(Sleds):
    def start(self) -> None:
        super().start()
        if not hasattr(self, "waiting"):
            self.waiting = threading.Event()
            threading.Thread(target=self.waiting.wait, args=(20,), daemon=True, name="a monitor").start()


@fault("leftovers")
class LeavesASocket(Sleds):
    open: list[Any] = []  # noqa: RUF012

    def start(self) -> None:
        super().start()
        if not hasattr(self, "socket"):
            self.socket = socket.socket()
            self.open.append(self.socket)


@fault("leftovers")
class LeavesAFile(Sleds):
    def start(self) -> None:
        super().start()
        if not hasattr(self, "path"):
            descriptor, self.path = tempfile.mkstemp(prefix="sleds-")
            os.close(descriptor)


@fault("leftovers")
class LeavesAFolder(Sleds):
    def start(self) -> None:
        super().start()
        if not hasattr(self, "folder"):
            self.folder = tempfile.mkdtemp(prefix="sleds-")
