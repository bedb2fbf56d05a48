"""N simulations of one model on MuJoCo Warp: what is on the device, and what of it is looked at from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from hal.errors import RobotError, SpecError

__all__ = ["STATE", "WarpDevice"]

STATE = ("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "time")
"""From these alone, and the model, the next step follows."""


class WarpDevice:
    """Steps them in single precision. `bind` gives arrays on the host, as MuJoCo's own batch does, but as copies that
    `pull` renews and `push` sends.

    Args:
        model: what is simulated.
        num: how many.
        substeps: steps of the physics in a control period.
        fresh: whether positions and what follows from them are computed anew at its end.
        device: Warp's name of a device: ``cuda:0``, or ``cpu``, where a step takes a thousand times as long, for tests;
            None is the first GPU.
        contacts: room for contacts, for each simulation on average.
        constraints: room for rows of constraints in each simulation; a contact takes up to six, a joint at its limit or
            with friction one.

    Raises:
        RobotError: MuJoCo Warp is not installed, or there is no such device.
        SpecError: the model has what is not supported here.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num: int,
        substeps: int,
        fresh: bool,
        device: str | None = None,
        contacts: int = 32,
        constraints: int = 128,
    ) -> None:
        _check(model)
        self._warp, self._mjw = _imported()
        self._where = _device(self._warp, device)
        self.nsim, self._substeps, self._fresh = num, substeps, fresh
        with self._warp.ScopedDevice(self._where):
            try:
                self._model = self._mjw.put_model(model)
            except NotImplementedError as error:
                raise SpecError(f"MuJoCo Warp can't simulate this model: {error}") from error
            self._data = self._mjw.make_data(model, nworld=num, nconmax=contacts, njmax=constraints)
        self._model.opt.warn_overflow = 0  # it would print; `overflow` tells
        self._host = mujoco.MjData(model)
        self._mirrors: dict[str, np.ndarray] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # as Warp has them: matrices where MuJoCo has rows of nine
        self._graph: Any = None
        self._warm = False
        for name in STATE:
            self.bind(name)
        self.pull()

    def bind(self, name: str) -> np.ndarray:
        """A field of ``mjData`` of all of them, float64, (num, ...).

        Raises:
            ValueError: there is no such field.
        """
        if name not in self._mirrors:
            here, there = getattr(self._host, name, None), getattr(self._data, name, None)
            if here is None or there is None or not hasattr(there, "assign"):
                raise ValueError(f"MuJoCo Warp has no field {name!r}")
            self._mirrors[name] = np.zeros((self.nsim, *np.shape(here)))
            self._shapes[name] = there.numpy().shape
        return self._mirrors[name]

    @property
    def bound(self) -> tuple[str, ...]:
        """The fields that are looked at, `STATE` among them."""
        return tuple(self._mirrors)

    def pull(self, names: Iterable[str] | None = None) -> None:
        """Renew the arrays of these fields, or of all that are bound."""
        for name in self._mirrors if names is None else names:
            mirror = self._mirrors[name]
            if mirror.size:
                mirror[:] = getattr(self._data, name).numpy().reshape(mirror.shape)

    def push(self, names: Iterable[str]) -> None:
        """Send these fields to the device."""
        for name in names:
            mirror = self._mirrors[name]
            if mirror.size:
                getattr(self._data, name).assign(mirror.astype(np.float32).reshape(self._shapes[name]))

    def advance(self) -> None:
        """One control period of all. On a GPU the second one is recorded, and from then on launched as one."""
        with self._warp.ScopedDevice(self._where):
            if self._where.is_cuda and self._warm:
                if self._graph is None:
                    with self._warp.ScopedCapture() as capture:
                        self._period()
                    self._graph = capture.graph
                self._warp.capture_launch(self._graph)
            else:
                self._period()
                self._warm = True

    def _period(self) -> None:
        for _ in range(self._substeps):
            self._mjw.step(self._model, self._data)
        if self._fresh:
            self._refresh()

    def refresh(self) -> None:
        """Compute what follows from positions and velocities; what follows from accelerations stays."""
        with self._warp.ScopedDevice(self._where):
            self._refresh()

    def _refresh(self) -> None:
        mjw, model, data = self._mjw, self._model, self._data
        mjw.fwd_position(model, data, factorize=False)
        mjw.sensor_pos(model, data)
        mjw.fwd_velocity(model, data)
        mjw.sensor_vel(model, data)

    def overflow(self) -> np.ndarray:
        """Whose contacts or constraints had no room since `clear_overflow`, and were left out; bool, (num,)."""
        kinds = self._mjw.OverflowType
        harmless = int(kinds.ITERATIONS | kinds.LS_ITERATIONS)  # a solver that stopped early, as on the CPU
        flags: np.ndarray = self._data.overflow.numpy()
        lost: np.ndarray = (flags & ~harmless) != 0
        return lost

    def clear_overflow(self, rows: np.ndarray) -> None:
        """Forget what overflowed in these."""
        flags = np.array(self._data.overflow.numpy())
        flags[rows] = 0
        self._data.overflow.assign(flags)


def _check(model: mujoco.MjModel) -> None:
    asleep = model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP.value
    for there, what in ((model.nhistory, "delay buffers"), (model.nmocap, "mocap bodies"), (asleep, "sleeping bodies")):
        if there:
            raise SpecError(f"a model with {what} is not supported on MuJoCo Warp here; use the batch on the CPU")


def _imported() -> tuple[Any, Any]:
    try:
        import warp
    except ImportError as error:
        raise RobotError("simulation on a GPU needs MuJoCo Warp: pip install 'rlenv-robot[gpu]'") from error
    if warp.config.log_level == warp.LOG_INFO:  # it would greet on standard output, and name each kernel that it loads
        warp.config.log_level = warp.LOG_WARNING
    try:
        import mujoco_warp
    except ImportError as error:
        raise RobotError("simulation on a GPU needs MuJoCo Warp: pip install 'rlenv-robot[gpu]'") from error
    return warp, mujoco_warp


def _device(warp: Any, name: str | None) -> Any:
    if name is None and not warp.is_cuda_available():
        raise RobotError(
            "there is no GPU that Warp can use (an NVIDIA one, with its driver). device='cpu' is the batch for this "
            "machine; device='warp:cpu' debugs Warp's, slowly"
        )
    try:
        return warp.get_device("cuda:0" if name is None else name)
    except (ValueError, RuntimeError) as error:
        known = ", ".join(str(each) for each in warp.get_devices())
        raise RobotError(f"Warp has no device {name!r}, it has {known}") from error
