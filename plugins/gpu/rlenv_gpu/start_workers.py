"""Make episodes ahead of time, in processes beside the one that steps the device."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np

from rlenv_gpu.starts import EpisodeMaker

__all__ = ["MadeEpisodes", "StartWorkers", "default_workers"]

_log = logging.getLogger(__name__)

_MOST_WORKERS = 16
_CHUNK = 128
"""The most episodes that a worker is asked for at once."""
_ORPHAN_S = 5.0
"""Interval at which a process looks whether the one that asks still lives, seconds."""
_UNDERWAY = 2
"""The most requests that a worker has at once, so that the most urgent episodes are asked for first."""


class MadeEpisodes(NamedTuple):
    """Episodes that were made, in the order of each environment's numbers.

    Attributes:
        envs: the environments, (n,).
        numbers: the number of each one's episode, from 0, (n,).
        rows: packed episodes, int64 (n, width).
    """

    envs: np.ndarray
    numbers: np.ndarray
    rows: np.ndarray


def default_workers() -> int:
    """Return a number of processes for this machine: its processors but two, from 1 to 16; 0 without ``fork``."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 0
    return min(_MOST_WORKERS, max(1, (os.cpu_count() or 1) - 2))


class StartWorkers:
    """Processes that make episodes. Those of a process arrive in the order of the requests.

    The processes are forked, so that a task need not be picklable. They never use the device.

    Args:
        maker: makes the episodes.
        num: number of processes, at least 1.
    """

    def __init__(self, maker: EpisodeMaker, num: int) -> None:
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        self._underway = [0] * num
        self._seed = 0
        self._generation = 0
        for _ in range(num):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(maker, theirs, [*self._ends, ours]), daemon=True)
            with warnings.catch_warnings():
                # Python warns of a fork beside other threads: this child uses none of their locks.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def restart(self, seed: int) -> None:
        """Discard all requests, and make the episodes of another seed from now on."""
        self._seed = seed
        self._generation += 1

    def room(self) -> np.ndarray:
        """Return whether each process takes a request, bool (num,)."""
        return np.array(self._underway) < _UNDERWAY

    def ask(self, worker: int, envs: np.ndarray, numbers: np.ndarray) -> int:
        """Ask a process for episodes, as many of the first ones as it takes at once, and return their number.

        Raises:
            RuntimeError: the process ended.
        """
        count = min(len(envs), _CHUNK)
        try:
            self._ends[worker].send((self._generation, self._seed, envs[:count], numbers[:count]))
        except OSError as error:
            raise self._ended(worker) from error
        self._underway[worker] += 1
        return count

    def made(self, timeout_s: float = 0.0) -> Iterator[MadeEpisodes]:
        """Yield the episodes that have arrived.

        Args:
            timeout_s: how long to wait for the first ones.

        Raises:
            RuntimeError: a process ended.
            Exception: an error of the task while it drew an episode.
        """
        arrived = set(wait(self._ends, timeout_s))
        for worker, end in enumerate(self._ends):
            if end not in arrived:
                continue
            try:
                generation, result = end.recv()
            except (EOFError, OSError) as error:
                raise self._ended(worker) from error
            self._underway[worker] -= 1
            if generation != self._generation:
                continue
            if isinstance(result, Exception):
                raise result
            yield MadeEpisodes(*result)

    def _ended(self, worker: int) -> RuntimeError:
        self._processes[worker].join(1.0)
        code = self._processes[worker].exitcode
        return RuntimeError(
            f"a process that draws episodes ended with code {code}; make the environments with workers=0 to draw them "
            "in this process"
        )

    def close(self) -> None:
        """End the processes. Safe to call more than once."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.send(None)  # closing would not do, as processes that were forked later may hold the end too
            end.close()
        for process in self._processes:
            process.join(5.0)
            if process.is_alive():
                process.terminate()
        self._ends, self._processes = [], []


def _work(maker: EpisodeMaker, end: Connection, others: list[Connection]) -> None:
    """Answer requests until None comes. Nothing of the first process, such as a GPU's memory, is freed."""
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    own, parent = maker.again(), os.getppid()
    with contextlib.suppress(EOFError, OSError):
        while True:
            while not end.poll(_ORPHAN_S):
                if os.getppid() != parent:
                    return
            request = end.recv()
            if request is None:
                return
            generation, seed, envs, numbers = request
            try:
                result: object = (envs, numbers, own.rows(seed, envs, numbers))
            except Exception as error:  # told to whoever steps
                result = error
            end.send((generation, result))
