"""Functions of tensors that are compiled from the operations of a call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra train)")

from rlenv_gpu.fused import Fused, run_as_written  # noqa: E402
from rlenv_gpu.launches import CountedLaunches  # noqa: E402
from rlenv_gpu.recording import close_enough, without_collector  # noqa: E402
from rlenv_gpu.tensor_array import TensorArray  # noqa: E402


class Pair(NamedTuple):
    one: Any
    other: Any


class Counted:
    """A function that reads a tensor of its own, and the number of its calls."""

    def __init__(self) -> None:
        self.calls, self.offset = 0, TensorArray(torch.tensor([1.0, 2.0, 3.0]))

    def __call__(self, given: Pair) -> dict[str, Any]:
        self.calls += 1
        moved = np.where(given.other, given.one + self.offset, given.one)
        written = np.zeros_like(given.one)
        written[..., 1:] = moved[..., :2]  # into a tensor that the function made
        halves = torch.unbind(written.tensor)
        return {"moved": moved, "pair": Pair(written, halves[1]), "given": given.one, "none": {}}


def given(seed: int) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand((2, 3), generator=generator)
    return Pair(TensorArray(values), TensorArray(values > 0.5))


def test_what_was_written_down_is_run_in_place_of_the_function() -> None:
    function = Counted()
    fused = Fused(function, run_as_written, "a function")
    for seed in range(5):
        values, offset = given(seed), torch.rand(3)
        function.offset.tensor.copy_(offset)  # read at its place in each call
        ours, theirs = fused(values), Counted.__call__(function, values)
        assert type(ours["pair"]) is Pair
        assert ours["given"].tensor is values.one.tensor or (ours["given"].tensor == values.one.tensor).all()
        assert (ours["moved"].tensor == theirs["moved"].tensor).all()
        assert (ours["pair"].one.tensor == theirs["pair"].one.tensor).all()
        assert (ours["pair"].other == theirs["pair"].other).all()
    assert fused.is_compiled
    assert function.calls == 2 + 5  # two of ours: as it is, and to write it down


def refuse(graph: object, inputs: object) -> Callable[..., Sequence[Any]]:
    raise NotImplementedError("no such device")


def wrong(graph: Any, inputs: object) -> Callable[..., Sequence[Any]]:
    return lambda *tensors: [tensor + 1 for tensor in graph(*tensors)]


STATE = torch.zeros(3)


@pytest.mark.parametrize(
    ("function", "compiler", "reason"),
    [
        (lambda value: value + 1, refuse, "NotImplementedError: no such device"),
        (lambda value: value + 1, wrong, "returns something else"),
        (lambda value: STATE.add_(value), run_as_written, "changes a tensor that the function did not make"),
        (lambda value: value.mul_(2), run_as_written, "changes a tensor that the function did not make"),
    ],
)
def test_a_function_that_can_not_be_compiled_is_called(
    function: Callable[..., Any], compiler: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    fused = Fused(function, compiler, "a function")
    for _ in range(3):
        value = torch.ones(3)
        expected = function(value.clone())
        STATE.zero_()
        assert (fused(value) == (expected if expected is not STATE else value)).all()
        STATE.zero_()
    assert not fused.is_compiled
    assert reason in fused.refusal
    assert caplog.text.count("a function is not compiled") == 1


def test_runs_of_the_same_physics_are_close() -> None:
    values = torch.rand(1000)
    near, far = values + 1e-4, values.clone()
    far[:21] += 0.1
    assert close_enough([values], [near])
    assert not close_enough([values], [far])
    assert close_enough([values, torch.tensor([float("nan")])], [values, torch.tensor([float("nan")])])


def test_the_collector_rests_while_work_is_recorded() -> None:
    assert gc.isenabled()
    with without_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_launches_and_waits_are_counted() -> None:
    values = torch.rand(4)
    with CountedLaunches() as counted:
        torch.empty(3).copy_(values[1:])
        values[:2].view(2, 1)
        if values.sum().item() > 9:
            values += 1
    assert dict(counted.launches) == {"copy_": 1, "sum": 1, "_local_scalar_dense": 1}
    assert dict(counted.waits) == {"_local_scalar_dense": 1}
