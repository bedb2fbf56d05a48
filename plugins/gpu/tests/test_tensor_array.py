"""NumPy's functions of `TensorArray` give NumPy's values in NumPy's types; what needs the host is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra train)")

from rlenv_gpu.tensor_array import _FUNCTIONS, _UFUNCS, TensorArray  # noqa: E402

TYPES = ("bool", "int32", "int64", "float32", "float64")
WHOLE = {np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert}
SHARP = {np.floor_divide, np.remainder, np.reciprocal}
"""Functions that jump, so that numbers which differ in the last bit give others; whole numbers are compared."""

HALF = st.floats(-0.875, 0.875, width=32)


def on_device(values: Any) -> TensorArray:
    return TensorArray(torch.from_numpy(np.array(values)))


def assert_same(ours: Any, numpys: Any) -> None:
    ours = ours.tensor.numpy()
    assert ours.dtype == np.asarray(numpys).dtype
    assert ours.shape == np.shape(numpys)
    np.testing.assert_allclose(ours, numpys, rtol=2e-6, atol=1e-6)


@given(st.data())
def test_element_by_element(data: st.DataObject) -> None:
    ufunc = data.draw(st.sampled_from(sorted(_UFUNCS, key=lambda each: each.__name__)))
    if ufunc is np.matmul:
        return
    types = ("int32", "int64") if ufunc in SHARP else ("bool", "int32", "int64") if ufunc in WHOLE else TYPES
    inputs: list[Any] = []
    for _ in range(ufunc.nin):
        dtype = np.dtype(data.draw(st.sampled_from(types)))
        shape = data.draw(st.sampled_from([(2, 3), (3,), (2, 1), ()]))
        elements = HALF if dtype.kind == "f" else st.booleans() if dtype.kind == "b" else st.integers(1, 5)
        inputs.append(data.draw(arrays.arrays(dtype, shape, elements=elements)))
    weak = data.draw(st.booleans()) and ufunc.nin == 2 and ufunc not in WHOLE
    if weak:
        inputs[1] = data.draw(st.sampled_from([2, 3])) if ufunc in SHARP else data.draw(st.sampled_from([2, 0.5]))
    try:
        with np.errstate(all="ignore"):
            expected = ufunc(*inputs)
    except (TypeError, ValueError):  # no loop for these types, or a whole number to a negative power
        return
    if np.asarray(expected).dtype not in [np.dtype(name) for name in (*TYPES, "int8", "uint8")]:
        return  # float16: half precision has no counterpart in most tasks
    with np.errstate(all="ignore"):
        got = ufunc(*(each if weak and place == 1 else on_device(each) for place, each in enumerate(inputs)))
    assert_same(got, expected)


A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7 - 1
B = np.sin(A).astype(np.float64)
CALLS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: np.where(a > 0, a, b),
    lambda a, b: np.where(a > 0, a, 0.0),
    lambda a, b: np.concatenate([a, b], axis=-1),
    lambda a, b: np.concatenate([a, b], axis=-1, dtype=np.float32, casting="unsafe"),
    lambda a, b: np.stack([a, a], axis=1),
    lambda a, b: np.clip(a, -0.5, 0.5),
    lambda a, b: np.clip(a, b, None),
    lambda a, b: a.sum(axis=-1),
    lambda a, b: np.sum(a > 0, axis=(0, 1)),
    lambda a, b: a.mean(axis=1, keepdims=True),
    lambda a, b: np.add.reduce(np.square(a), axis=-1),
    lambda a, b: np.maximum.reduce(a, axis=0),
    lambda a, b: (a > 0).any(axis=-1),
    lambda a, b: np.all(a > 0, axis=-1),
    lambda a, b: a.max(axis=-1),
    lambda a, b: a.min(),
    lambda a, b: np.linalg.norm(a, axis=-1),
    lambda a, b: np.cross(a[..., :3], b[..., 1:]),
    lambda a, b: np.take_along_axis(a, np.array([[[0], [1], [2]]] * 2), axis=-1),
    lambda a, b: a.take(np.array([2, 0]), -1),
    lambda a, b: np.take(a, 1, axis=1),
    lambda a, b: np.broadcast_to(a[0], (5, 3, 4)),
    lambda a, b: np.zeros_like(a),
    lambda a, b: np.full_like(a[..., :1], 3.0),
    lambda a, b: np.ones_like(a, np.int32),
    lambda a, b: np.reshape(a, (2, 12)),
    lambda a, b: a.reshape(2, -1).astype(np.float64),
    lambda a, b: np.expand_dims(a, 1),
    lambda a, b: np.moveaxis(a, 0, 2),
    lambda a, b: np.flip(a, axis=-1),
    lambda a, b: np.repeat(a, 2, axis=1),
    lambda a, b: np.argmax(b, axis=-1),
    lambda a, b: np.argmin(a > 0, axis=0),
    lambda a, b: np.cumsum(a, axis=-1),
    lambda a, b: a[..., np.array([True, False, True, False])],
    lambda a, b: a[..., None, 1:3],
    lambda a, b: a[:, [0, 2]],
    lambda a, b: a.T,
    lambda a, b: np.ravel(a),
    lambda a, b: np.float32(2.0) * a + b - 1,
    lambda a, b: a / 2 ** np.abs(b) // 1,
    lambda a, b: A - a,
    lambda a, b: a @ np.swapaxes(b, -1, -2),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_functions(call: Callable[[Any, Any], Any]) -> None:
    assert_same(call(on_device(A), on_device(B)), call(A, B))


def test_written_into() -> None:
    def filled(like: Any) -> Any:
        result = np.empty_like(like, shape=(2, 2))
        result[..., 0] = 1.5
        result[..., 1] = like[:2, 0, 0]
        result[result > 1] = -1.0
        result *= 2
        np.clip(result, -1.5, 9.0, out=result)
        return result

    assert_same(filled(on_device(A)), filled(A))


@pytest.mark.parametrize(
    "need", [float, int, bool, np.asarray, lambda a: a[a > 0], lambda a: np.zeros(24).__setitem__(slice(3), a)]
)
def test_what_needs_the_host_is_refused(need: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="on a device"):
        need(on_device(A))


@pytest.mark.parametrize("call", [np.linalg.inv, np.sort, np.add.accumulate, np.frexp])
def test_a_missing_function_is_named(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=call.__name__):
        call(on_device(np.eye(3)))


def test_a_constant_that_changes_is_sent_again() -> None:
    constant, ours = np.ones(4, np.float32), on_device(A)
    before = (ours * constant).tensor.clone()
    constant *= 3
    assert_same(ours * constant, A * constant)
    np.testing.assert_array_equal(before.numpy(), A)
    assert len(_FUNCTIONS) > 30
