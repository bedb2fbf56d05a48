"""Simulations of one model on a device of MuJoCo Warp, and mirrors of their fields on the host."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import mujoco
import numpy as np

from hal.errors import RobotError, SpecError

__all__ = ["STATE", "WarpDevice"]

STATE = ("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "time")
"""The fields that, with the model, determine the next step."""


class WarpDevice:
    """Step simulations of one model on a device, in single precision.

    `bind` returns arrays on the host, as the batch of MuJoCo does, but here they are copies: `pull` renews them and
    `push` sends them.

    Args:
        model: the model to simulate.
        num: number of simulations.
        substeps: steps of the physics in a control period.
        refresh: whether positions and the quantities that follow from them are computed anew at the end of a period.
        device: Warp's name of a device: ``cuda:0``, or ``cpu``, where a step takes a thousand times as long, for tests;
            None is the first GPU.
        contacts: room for contacts, for each simulation on average.
        constraints: room for rows of constraints in each simulation; a contact takes up to six, a joint at its limit or
            with friction takes one.

    Raises:
        RobotError: MuJoCo Warp is not installed, or there is no such device.
        SpecError: the model uses a feature that is not supported here.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num: int,
        substeps: int,
        refresh: bool,
        device: str | None = None,
        contacts: int = 32,
        constraints: int = 128,
    ) -> None:
        _check(model)
        self._warp, self._mjw = _imported()
        self._device = _device(self._warp, device)
        self.nsim, self._substeps, self._refreshes = num, substeps, refresh
        with self._warp.ScopedDevice(self._device):
            try:
                self._model = self._mjw.put_model(model)
            except NotImplementedError as error:
                raise SpecError(f"MuJoCo Warp can't simulate this model: {error}") from error
            self._data = self._mjw.make_data(model, nworld=num, nconmax=contacts, njmax=constraints)
        self._model.opt.warn_overflow = 0  # it would print; `overflow` returns it instead
        self._host = mujoco.MjData(model)
        self._mirrors: dict[str, np.ndarray] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # in Warp, which has matrices where MuJoCo has rows of nine
        self._graph: Any = None
        self._warm = False
        for name in STATE:
            self.bind(name)
        self.pull()

    def bind(self, name: str) -> np.ndarray:
        """Return the host's copy of a field of ``mjData`` of all simulations, float64, (num, ...); live from now on.

        Raises:
            ValueError: there is no such field.
        """
        if name not in self._mirrors:
            on_host, on_device = getattr(self._host, name, None), getattr(self._data, name, None)
            if on_host is None or on_device is None or not hasattr(on_device, "assign"):
                raise ValueError(f"MuJoCo Warp has no field {name!r}")
            self._mirrors[name] = np.zeros((self.nsim, *np.shape(on_host)))
            self._shapes[name] = on_device.numpy().shape
        return self._mirrors[name]

    @property
    def bound(self) -> tuple[str, ...]:
        """Names of the fields that have a copy on the host, among them those of `STATE`."""
        return tuple(self._mirrors)

    def pull(self, names: Iterable[str] | None = None) -> None:
        """Copy these fields, or all bound fields, from the device to the host."""
        for name in self._mirrors if names is None else names:
            mirror = self._mirrors[name]
            if mirror.size:
                mirror[:] = getattr(self._data, name).numpy().reshape(mirror.shape)

    def push(self, names: Iterable[str]) -> None:
        """Copy these fields from the host to the device."""
        for name in names:
            mirror = self._mirrors[name]
            if mirror.size:
                getattr(self._data, name).assign(mirror.astype(np.float32).reshape(self._shapes[name]))

    def advance(self) -> None:
        """Step all simulations by one control period.

        On a GPU the second call records the period as a CUDA graph, and later calls launch the graph.
        """
        with self._warp.ScopedDevice(self._device):
            if self._device.is_cuda and self._warm:
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
        if self._refreshes:
            self._refresh()

    def refresh(self) -> None:
        """Recompute the quantities that follow from positions and velocities; those of accelerations stay."""
        with self._warp.ScopedDevice(self._device):
            self._refresh()

    def _refresh(self) -> None:
        mjw, model, data = self._mjw, self._model, self._data
        mjw.fwd_position(model, data, factorize=False)
        mjw.sensor_pos(model, data)
        mjw.fwd_velocity(model, data)
        mjw.sensor_vel(model, data)

    def overflow(self) -> np.ndarray:
        """Return whether each simulation has lost contacts or constraints since `clear_overflow`; bool, (num,)."""
        overflow = self._mjw.OverflowType
        harmless = int(overflow.ITERATIONS | overflow.LS_ITERATIONS)  # a solver that stopped early, as on the CPU
        flags: np.ndarray = self._data.overflow.numpy()
        lost: np.ndarray = (flags & ~harmless) != 0
        return lost

    def clear_overflow(self, rows: np.ndarray) -> None:
        """Clear the overflow of these simulations."""
        flags = np.array(self._data.overflow.numpy())
        flags[rows] = 0
        self._data.overflow.assign(flags)


def _check(model: mujoco.MjModel) -> None:
    sleeps = model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP.value
    for count, feature in (
        (model.nhistory, "delay buffers"),
        (model.nmocap, "mocap bodies"),
        (sleeps, "sleeping bodies"),
    ):
        if count:
            raise SpecError(f"a model with {feature} is not supported on MuJoCo Warp here; use the batch on the CPU")


def _imported() -> tuple[ModuleType, ModuleType]:
    try:
        import warp
    except ImportError as error:
        raise RobotError("simulation on a GPU needs MuJoCo Warp: pip install 'rlenv-robot[gpu]'") from error
    if warp.config.log_level == warp.LOG_INFO:  # at this level it prints a greeting and each kernel that it loads
        warp.config.log_level = warp.LOG_WARNING
    try:
        import mujoco_warp
    except ImportError as error:
        raise RobotError("simulation on a GPU needs MuJoCo Warp: pip install 'rlenv-robot[gpu]'") from error
    return warp, mujoco_warp


def _device(warp: ModuleType, name: str | None) -> Any:
    if name is None and not warp.is_cuda_available():
        raise RobotError(
            "there is no GPU that Warp can use (an NVIDIA one, with its driver). device='cpu' is the batch for this "
            "machine; device='warp:cpu' debugs Warp's, slowly"
        )
    try:
        return warp.get_device("cuda:0" if name is None else name)
    except (ValueError, RuntimeError) as error:
        devices = ", ".join(map(str, warp.get_devices()))
        raise RobotError(f"Warp has no device {name!r}, it has {devices}") from error
