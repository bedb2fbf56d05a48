"""Draw tiles, frames and curves in processes of their own, so that neither their work nor a decoder's crash hinders the
server."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hal import RobotError, SourceError
from rlenv_data_browser.episodes import EpisodeReader
from rlenv_data_browser.tile_cache import TileCache

__all__ = ["DrawingProcesses"]

_SPAWN = multiprocessing.get_context("spawn")


class DrawingProcesses:
    """Calls methods of `rlenv_data_browser.episodes.EpisodeReader` in other processes. Any thread may call.

    Args:
        options: options for reading other projects' data sets.
        tiles: the folder of tiles; None for the one in the user's cache.
        count: number of processes, each of which starts with its first call.
    """

    def __init__(self, options: Mapping[str, object], tiles: Path | None, count: int) -> None:
        self._options, self._tiles = dict(options), tiles
        self._free: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._all = [_Worker(self._options, tiles) for _ in range(count)]
        for worker in reversed(self._all):
            self._free.put(worker)

    def call(self, method: str, *arguments: object) -> Any:
        """Return what a method returns.

        Raises:
            SourceError: the method refused, or its process ended.
        """
        worker = self._free.get()
        try:
            done, result = worker.ask(method, arguments)
        finally:
            self._free.put(worker)
        if not done:
            raise SourceError(result)
        return result

    def close(self) -> None:
        """End the processes. Safe to call more than once."""
        for worker in self._all:
            worker.close()


class _Worker:
    """One process, which begins with the first question, and again after it has ended."""

    def __init__(self, options: Mapping[str, object], tiles: Path | None) -> None:
        self._arguments = options, tiles
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._closed = False

    def ask(self, method: str, arguments: tuple[object, ...]) -> tuple[bool, Any]:
        """Return whether a method was carried out, and its result, or why not."""
        try:
            pipe = self._pipe or self._start()
            pipe.send((method, arguments))
            answer: tuple[bool, Any] = pipe.recv()
        except (EOFError, OSError):
            self._end()
            return False, "the process that decodes images has ended; the video or image may be damaged: fetch it again"
        return answer

    def _start(self) -> Connection:
        if self._closed:
            raise EOFError
        self._pipe, other = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_answer, args=(other, *self._arguments), daemon=True)
        self._process.start()
        other.close()
        return self._pipe

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def close(self) -> None:
        """End the process; a question that it has not answered is refused."""
        self._closed = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ValueError):  # ended meanwhile
                process.kill()


def _answer(pipe: Connection, options: Mapping[str, object], tiles: Path | None) -> None:
    """Answer the questions that come through a pipe, until it or this process's parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(5)  # the server answers first
    reader = EpisodeReader(options, TileCache(tiles))
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, arguments = pipe.recv()
            pipe.send(_done(getattr(reader, method), arguments))


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _done(method: Any, arguments: tuple[object, ...]) -> tuple[bool, Any]:
    try:
        return True, method(*arguments)
    except (RobotError, ValueError, OSError) as error:
        return False, str(error)
    except Exception as error:  # a format's or a decoder's, on files that nobody has seen before
        return False, f"this episode could not be drawn: {error!r:.300}"
