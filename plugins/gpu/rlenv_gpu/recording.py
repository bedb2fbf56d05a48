"""Record the work of a step on a GPU, so that the host enqueues it as one operation."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch

from rlenv_gpu.packed import Nested, tensors_in
from rlenv_gpu.tensor_array import holding_constants

__all__ = ["Recorded", "Recorder", "close_enough", "record_graph", "same_bits", "without_collector"]

_log = logging.getLogger(__name__)

Recorder: TypeAlias = Callable[[Callable[[], Nested]], tuple[Callable[[], object], Nested]]
"""Function that records another function's work without running it, and returns a function that replays it, and the
results."""

Same: TypeAlias = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], bool]

_SHARE = 0.02
_TOLERANCE = 1e-3


class Recorded:
    """Call a function on the device's memory. On a GPU, record its work as a CUDA graph and replay it.

    The host takes longer to enqueue a step of a hundred small operations than the GPU takes to run it. The function
    must do the same operations on the same memory in every call, and keep its results in its own memory, so that a
    replay overwrites the previous results. The first replay is compared with a call. A function that can't be recorded,
    or differs, is called without a recording, and the log gives the reason.

    Args:
        function: a function without arguments.
        memory: returns the tensors that the function changes, other than its results.
        record: makes a recording, as `record_graph` does; None calls the function every time.
        name: of the work, for the log.
        recorded: the function to record, if it differs from the one that is called; it does the same work.
        warm: calls before the recording, which fill caches of constants and the libraries' own memory.
        same: compares the memory after a replay with that after a call.

    Attributes:
        result: result of the latest call.
        refusal: why there is no recording; empty before the attempt, and if there is one.
    """

    def __init__(
        self,
        function: Callable[[], Nested],
        memory: Callable[[], list[torch.Tensor]],
        record: Recorder | None,
        name: str = "a step",
        *,
        recorded: Callable[[], Nested] | None = None,
        warm: int = 2,
        same: Same | None = None,
    ) -> None:
        self._function, self._memory, self._record, self._calls = function, memory, record, 0
        self._recorded, self._warm, self._name = recorded or function, warm, name
        self._same = same or same_bits
        self._repeat: Callable[[], object] | None = None
        self._constants: list[torch.Tensor] = []
        self.result: Nested = None
        self.refusal = ""

    @property
    def is_recorded(self) -> bool:
        """Whether calls replay a recording."""
        return self._repeat is not None

    def __call__(self) -> Nested:
        """Return the function's result."""
        self._calls += 1
        if self._repeat is not None:
            self._repeat()
        elif self._record is None or self._calls <= self._warm:
            self.result = self._function()
        else:
            self._make_recording(self._record)
        return self.result

    def _make_recording(self, record: Recorder) -> None:
        before = [tensor.clone() for tensor in self._memory()]
        try:
            with holding_constants(self._constants):
                repeat, repeated = record(self._recorded)
        except RuntimeError as error:
            self._call_from_now_on(str(error))
            self.result = self._function()
            return
        repeat()
        after = [tensor.clone() for tensor in [*tensors_in(repeated), *self._memory()]]
        for tensor, value in zip(self._memory(), before, strict=True):
            tensor.copy_(value)
        self.result = self._function()
        if self._same(after, [*tensors_in(self.result), *self._memory()]):
            self._repeat, self.result = repeat, repeated
        else:
            self._call_from_now_on("its recording does something else, as a function of the task is not pure")

    def _call_from_now_on(self, reason: str) -> None:
        self._record, self.refusal = None, reason
        _log.warning("%s is not recorded, and slower: %s", self._name, reason)


def same_bits(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return whether all numbers are equal; NaN equals NaN. This waits for the device."""
    return all(
        bool(((one == other) | ((one != one) & (other != other))).all())
        for one, other in zip(some, others, strict=True)
    )


def close_enough(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return whether the numbers of two runs of the same physics on a GPU are close. This waits for the device.

    All but a fiftieth of them differ by less than a thousandth of their size or of 1.
    """
    far, count = 0, 0
    for one, other in zip(some, others, strict=True):
        gap = (one.double() - other.double()).abs()
        near = (gap <= _TOLERANCE * (1 + other.double().abs())) | ((one != one) & (other != other))
        far += int((~near).sum())
        count += near.numel()
    return far <= _SHARE * count


def record_graph(function: Callable[[], Nested]) -> tuple[Callable[[], object], Nested]:
    """Record a function's work on the GPU as a CUDA graph (a `Recorder`).

    Raises:
        RuntimeError: the function waits for the GPU, or copies numbers from the host.
    """
    graph = torch.cuda.CUDAGraph()
    with without_collector(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph.replay, result


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Suspend Python's collector of cycles within the block, after one collection.

    A destructor that frees memory of the device while work is recorded would become a part of the recording.
    """
    gc.collect()
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
