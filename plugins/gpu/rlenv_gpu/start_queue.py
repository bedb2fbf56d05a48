"""Keep the next episodes of all environments on a device, so that beginning one needs nothing of the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import torch

from rlenv_gpu.start_workers import MadeEpisodes, StartWorkers
from rlenv_gpu.starts import EpisodeMaker

__all__ = ["HostMirror", "MirrorMaker", "StartQueue"]

_DEPTH = 8
"""Episodes that are kept for each environment, with processes that make them."""
_DEPTH_ALONE = 4
_ALONE = 64
"""The most episodes that the process which steps the device makes in a step by itself."""
_WORTH = 16
"""The fewest episodes for which a process is asked, unless they are urgent."""
_LEAST = 2
"""Episodes of an environment with which a step can be enqueued on a GPU that has done all steps before."""
_PATIENCE_S, _PAUSE_S = 0.001, 5e-5


class HostMirror(Protocol):
    """A copy on the host of a tensor on a device, which the host reads without waiting."""

    values: np.ndarray
    """The numbers that arrived last. While the device copies, some may be newer than others."""

    def send(self) -> None:
        """Enqueue the copy, behind the device's work so far."""
        ...


MirrorMaker: TypeAlias = Callable[[torch.Tensor], HostMirror]


class StartQueue:
    """The next episodes of N environments, in a ring on the device for each environment.

    The device takes the episodes of the environments that end (`take`), which is recorded with the rest of a step. The
    host makes further ones meanwhile (`refill`): it reads how many were taken from a copy of the device's counters
    that is some steps old, and asks processes for what is missing. Episode n of an environment is that of (seed,
    stream, n), whenever it is made.

    The host may be ahead of the device. `refill` enqueues a step only if no environment can run out of episodes in it,
    even if all of them ended in each of the steps that the device has not reported yet. So the host waits where it is
    several steps ahead, or where the processes make fewer episodes than end.

    Args:
        maker: makes the episodes.
        num: number of environments.
        device: the device.
        mirror: makes a copy on the host of a tensor.
        workers: number of processes that make episodes; 0 makes them in this one, within `refill`.

    Attributes:
        waits: how often `refill` waited for episodes.
        pauses: how often `refill` waited because the device was several steps behind, which costs no time.
    """

    def __init__(self, maker: EpisodeMaker, num: int, device: torch.device, mirror: MirrorMaker, workers: int) -> None:
        self._maker, self._num, self._device = maker, num, device
        workers = min(workers, num)
        self._depth = _DEPTH if workers else _DEPTH_ALONE
        self._workers = StartWorkers(maker, workers) if workers else None
        self._of_worker = [np.arange(worker, num, workers) for worker in range(workers)]
        self._ring = torch.zeros((self._depth * num, maker.width), dtype=torch.int64, device=device)
        self._counters = torch.zeros(num + 1, dtype=torch.int64, device=device)
        self._begun, self._steps = self._counters[:num], self._counters[num:]
        self._envs = torch.arange(num, device=device)
        self._mirror = mirror(self._counters)
        self._made = np.zeros(num, np.int64)
        self._asked = np.zeros(num, np.int64)
        self._seed = 0
        self._launched = 0
        self.waits = self.pauses = 0

    # -- on the device ---------------------------------------------------------------------------------------------

    def next(self) -> torch.Tensor:
        """Return the next episode of each environment, packed (N, width)."""
        ring: torch.Tensor = self._ring
        return ring.index_select(0, self._begun.remainder(self._depth) * self._num + self._envs)

    def taken(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the counters after a step in which the environments of a mask began their next episodes.

        Args:
            mask: bool, (N,).
        """
        return torch.cat([self._begun + mask, self._steps + 1])

    def report(self) -> None:
        """Send the counters to the host."""
        self._mirror.send()

    @property
    def counters(self) -> torch.Tensor:
        """The numbers of episodes that the environments began, and of steps, int64 (N + 1,), which `taken` follows."""
        return self._counters

    # -- on the host -----------------------------------------------------------------------------------------------

    def restart(self, seed: int) -> None:
        """Begin with episode 0 of another seed. This waits for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seed, self._launched = seed, 0
        if self._workers is not None:
            self._workers.restart(seed)
        self._made[:] = self._asked[:] = 0
        self._counters.zero_()
        self._mirror.values[:] = 0

    def settle(self) -> None:
        """Wait for the device, so that the host knows all that was taken."""
        self._mirror.send()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def refill(self) -> None:
        """Send episodes that were made to the device, and ask for others. Call it before each step, and each reset.

        Raises:
            RuntimeError: a process that makes episodes ended.
            Exception: an error of the task while it drew an episode.
        """
        self._launched += 1
        waited = False
        while True:
            # The count of steps first: the other numbers are those of this step or newer, but for the copy underway.
            unknown = self._launched - int(self._mirror.values[self._num]) + (self._device.type == "cuda")
            begun = self._mirror.values[: self._num].copy()
            self._make(begun, unknown, waited)
            left = int((self._made - begun).min())
            if left >= unknown:
                return
            if not waited:
                waited = True
                if left < _LEAST:
                    self.waits += 1
                else:
                    self.pauses += 1

    def _make(self, begun: np.ndarray, least: int, patient: bool) -> None:
        """Send to the device what was made, so that environments have at least so many episodes if that is possible."""
        if self._workers is not None:
            self._ask(begun)
            self._upload(list(self._workers.made(_PATIENCE_S if patient else 0.0)))
            return
        left = self._made - begun
        missing = np.flatnonzero(left < min(least, self._depth))
        if len(missing) < _ALONE:
            missing = np.argsort(left, kind="stable")[:_ALONE]
            missing = missing[left[missing] < self._depth]
        if len(missing):
            self._upload(
                [MadeEpisodes(missing, numbers := self._made[missing], self._maker.rows(self._seed, missing, numbers))]
            )
        elif patient:
            time.sleep(_PAUSE_S)  # the device has some steps to do, and then there is room

    def _ask(self, begun: np.ndarray) -> None:
        assert self._workers is not None
        left = self._asked - begun
        for worker in np.flatnonzero(self._workers.room()).tolist():
            envs = self._of_worker[worker]
            order = np.argsort(left[envs], kind="stable")
            urgent = envs[order[: int((left[envs] < self._depth).sum())]]
            if len(urgent) >= _WORTH or (len(urgent) and left[urgent[0]] <= self._depth // 2):
                asked = urgent[: self._workers.ask(worker, urgent, self._asked[urgent])]
                self._asked[asked] += 1

    def _upload(self, made: list[MadeEpisodes]) -> None:
        """Send made episodes to their places in the rings. On a GPU the host does not wait."""
        if not made:
            return
        envs, numbers = (np.concatenate([getattr(part, name) for part in made]) for name in ("envs", "numbers"))
        staged = torch.empty(
            (len(envs), 1 + self._maker.width), dtype=torch.int64, pin_memory=self._device.type == "cuda"
        )
        plain = staged.numpy()
        plain[:, 0] = numbers % self._depth * self._num + envs
        np.concatenate([part.rows for part in made], out=plain[:, 1:])
        rows = staged.to(self._device, non_blocking=True)
        self._ring.index_copy_(0, rows[:, 0], rows[:, 1:])
        np.maximum.at(self._made, envs, numbers + 1)

    def close(self) -> None:
        """End the processes. Safe to call more than once."""
        if self._workers is not None:
            self._workers.close()
