"""Wrap PyTorch tensors for NumPy's functions, so that code written for arrays runs on a GPU without changes.

A task's reward, a computed sensor or a limit on motion is a function of NumPy arrays with any leading axes. Given
`TensorArray`, ``np.exp``, ``np.where``, ``a[..., 2] > b`` and so on call PyTorch's functions (NEP 13 and NEP 18), with
NumPy's type rules. Operations that need the numbers on the host (``float(a)``, ``if a.any():``, ``np.asarray(a)``,
indexing by a mask) are refused with a message, since the host would have to wait for the device.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec

import numpy as np
import torch
from numpy.typing import DTypeLike

__all__ = ["TensorArray", "arrays_of", "for_tensors", "holding_constants", "tensors_of", "torch_type"]

_TO_TORCH = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
_TO_NUMPY = {ours: theirs for theirs, ours in _TO_TORCH.items()}
_CACHED_BYTES = 2**20
"""Bytes of a constant up to which it is cached on the device: copying one takes longer than any operation with it."""

Axis = int | tuple[int, ...] | None
P = ParamSpec("P")


class TensorArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor that behaves like a NumPy array.

    Attributes:
        tensor: the tensor, on any device, without a copy.
    """

    __slots__ = ("tensor",)
    __array_priority__ = 1000.0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    # -- as an array ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.tensor.numel())

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type of an element."""
        return _TO_NUMPY[self.tensor.dtype]

    @property
    def T(self) -> TensorArray:
        """The array with its axes reversed."""
        return TensorArray(self.tensor.permute(*range(self.ndim - 1, -1, -1)))

    def __len__(self) -> int:
        return len(self.tensor)

    def __repr__(self) -> str:
        return f"TensorArray(shape={self.shape}, dtype={self.dtype}, device={self.tensor.device})"

    def __getitem__(self, key: object) -> TensorArray:
        return TensorArray(self.tensor[_index(key, self.tensor.device)])

    def __setitem__(self, key: object, value: object) -> None:
        if isinstance(key, TensorArray) and key.tensor.dtype == torch.bool:
            mask = key.tensor.reshape(*key.shape, *(1,) * (self.ndim - key.ndim))
            self.tensor.copy_(torch.where(mask, _operand(value, self.dtype, self.tensor.device), self.tensor))
        else:
            where = _index(key, self.tensor.device)
            self.tensor[where] = _operand(value, self.dtype, self.tensor.device)

    def astype(self, dtype: DTypeLike, copy: bool = True, **options: object) -> TensorArray:
        """Return the array with another dtype: a new array unless ``copy`` is False and the dtype is the same."""
        return TensorArray(self.tensor.to(torch_type(dtype), copy=copy))

    def reshape(self, *shape: int | tuple[int, ...]) -> TensorArray:
        """Return the array with another shape."""
        whole = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return TensorArray(self.tensor.reshape(whole))

    def copy(self) -> TensorArray:
        """Return a copy of the array."""
        return TensorArray(self.tensor.clone())

    def ravel(self) -> TensorArray:
        """Return the elements as an array of one axis."""
        return TensorArray(self.tensor.reshape(-1))

    def take(self, indices: object, axis: int | None = None) -> TensorArray:
        """Return elements by index along an axis, or of the flattened array."""
        return _take(self, indices, axis)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> TensorArray:
        """Return sums along an axis, or of all elements."""
        return _sum(self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> TensorArray:
        """Return means along an axis, or of all elements."""
        return _mean(self, axis, keepdims=keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> TensorArray:
        """Return the largest elements along an axis, or of all elements."""
        return _max(self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> TensorArray:
        """Return the smallest elements along an axis, or of all elements."""
        return _min(self, axis, keepdims=keepdims)

    def any(self, axis: Axis = None, keepdims: bool = False) -> TensorArray:
        """Return whether an element is true along an axis, or of all elements."""
        return _any(self, axis, keepdims=keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> TensorArray:
        """Return whether all elements are true along an axis, or of all elements."""
        return _all(self, axis, keepdims=keepdims)

    def __bool__(self) -> NoReturn:
        _refuse("a Python condition, such as `if`, `and`, `or`, `not`; use numpy.where, &, | and ~ instead")

    def __float__(self) -> NoReturn:
        _refuse("float(); keep it an array")

    def __int__(self) -> NoReturn:
        _refuse("int(); keep it an array")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        _refuse("numpy.asarray, numpy.array, or an assignment into an array of NumPy's; begin with numpy.empty_like")

    # -- NumPy's functions -----------------------------------------------------------------------------------------

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, out: tuple[object, ...] | None = None, **options: Any
    ) -> TensorArray:
        device = next(value for value in (*inputs, *(out or ())) if isinstance(value, TensorArray)).tensor.device
        if method == "reduce" and ufunc in _REDUCTIONS and out is None:
            values = TensorArray(_operand(inputs[0], None, device))
            axis = options.pop("axis", 0)
            _no_more(f"numpy.{ufunc.__name__}.reduce", {k: v for k, v in options.items() if k != "keepdims"})
            return _REDUCTIONS[ufunc](values, axis, keepdims=bool(options.get("keepdims", False)))
        if method != "__call__" or ufunc not in _UFUNCS:
            _missing(f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"))
        _no_more(f"numpy.{ufunc.__name__}", options)
        kinds = _loop(ufunc, tuple(_kind(value) for value in inputs))
        operands = [_operand(value, kind, device) for value, kind in zip(inputs, kinds, strict=False)]
        same = ufunc in _SAME_FOR_BOOL and operands[0].dtype == torch.bool
        result = operands[0].clone() if same else _UFUNCS[ufunc](*operands).to(_TO_TORCH[kinds[-1]])
        if out is None:
            return TensorArray(result)
        (target,) = out
        if not isinstance(target, TensorArray):
            _refuse(f"a NumPy array as the output of numpy.{ufunc.__name__}")
        target.tensor.copy_(result)
        return target

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> object:
        if function not in _FUNCTIONS:
            _missing(f"numpy.{function.__name__}")
        return _FUNCTIONS[function](*args, **kwargs)


def for_tensors(function: Callable[P, Any]) -> Callable[P, Any]:
    """Convert a function of arrays to a function of tensors, which runs on their device and returns tensors.

    Args:
        function: a function such as `FlattenObservation.observe` that takes and returns NumPy arrays, alone or in
            dictionaries. It may use the operations of `TensorArray`.
    """

    def called(*args: P.args, **kwargs: P.kwargs) -> Any:
        given = [_wrapped(arg) for arg in args]
        return _unwrapped(function(*given, **{name: _wrapped(value) for name, value in kwargs.items()}))

    return called


def _wrapped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _wrapped(each) for name, each in value.items()}
    return TensorArray(value) if isinstance(value, torch.Tensor) else value


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unwrapped(each) for name, each in value.items()}
    return value.tensor if isinstance(value, TensorArray) else value


def arrays_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return tensors as arrays, by name: each a `TensorArray`, which NumPy's type stubs don't know."""
    return {name: TensorArray(tensor) for name, tensor in tensors.items()}


def tensors_of(arrays: dict[str, Any], device: torch.device) -> dict[str, torch.Tensor]:
    """Return arrays as tensors, by name. A NumPy array is copied to the device."""
    return {name: _operand(array, None, device) for name, array in arrays.items()}


# -- Operands and types --------------------------------------------------------------------------------------------


def torch_type(dtype: DTypeLike) -> torch.dtype:
    """Return PyTorch's type for one of NumPy's."""
    return _TO_TORCH[np.dtype(dtype)]


def _kind(value: object) -> object:
    """Return the type that decides on a result's: a number of Python's is weak, as in NEP 50."""
    if isinstance(value, TensorArray):
        return value.dtype
    if type(value) in (int, float):
        return type(value)
    return np.asarray(value).dtype


@functools.lru_cache(maxsize=1024)
def _loop(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    """Return the types in which NumPy computes, of all inputs and the output."""
    return tuple(ufunc.resolve_dtypes((*kinds, None)))


def _operand(value: object, dtype: np.dtype | None, device: torch.device) -> torch.Tensor:
    """Return a tensor on the device, in a type of NumPy's, or in its own."""
    if isinstance(value, TensorArray):
        tensor = value.tensor
        return tensor if dtype is None else tensor.to(_TO_TORCH[dtype])
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=value.dtype if dtype is None else _TO_TORCH[dtype])
    array = np.asarray(value, dtype)
    if array.nbytes > _CACHED_BYTES:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
    constant = _constant(array.tobytes(), array.shape, array.dtype, device)
    if (held := _held.get()) is not None:
        held.append(constant)
    return constant


@contextlib.contextmanager
def holding_constants(held: list[torch.Tensor]) -> Iterator[None]:
    """Append the constants used in the block to a list, which keeps their memory alive for replays of a recording."""
    token = _held.set(held)
    try:
        yield
    finally:
        _held.reset(token)


_held: contextvars.ContextVar[list[torch.Tensor] | None] = contextvars.ContextVar("held", default=None)


@functools.lru_cache(maxsize=256)
def _constant(content: bytes, shape: tuple[int, ...], dtype: np.dtype, device: torch.device) -> torch.Tensor:
    """Return a constant that is sent to the device once. It is shared: nobody writes into it."""
    return torch.from_numpy(np.frombuffer(content, dtype).reshape(shape).copy()).to(device)


def _index(key: object, device: torch.device) -> Any:
    if isinstance(key, tuple):
        chosen = [np.nonzero(each) if _is_mask(each) else (each,) for each in key]
        return tuple(_index(each, device) for each in itertools.chain(*chosen))
    if isinstance(key, TensorArray):
        if key.tensor.dtype == torch.bool:
            _refuse("indexing by a mask, since the number of its elements is unknown; use numpy.where")
        return key.tensor.long()
    if isinstance(key, np.ndarray | list):
        return _index(np.nonzero(key), device) if _is_mask(key) else _operand(key, np.dtype(np.int64), device)
    if isinstance(key, slice) and isinstance(key.step, int) and key.step < 0:
        _missing("a slice with a negative step; use numpy.flip")
    return key


def _is_mask(key: object) -> bool:
    return isinstance(key, np.ndarray | list) and np.asarray(key).dtype == bool


def _refuse(what: str) -> NoReturn:
    raise TypeError(f"an array on a device can't be used in {what}")


def _missing(what: str) -> NoReturn:
    raise TypeError(
        f"{what} is not available for arrays on a device; write the function with another one, or step on the CPU"
    )


def _no_more(what: str, options: dict[str, Any]) -> None:
    given = sorted(name for name, value in options.items() if value is not None and value is not np._NoValue)
    if given:
        _missing(f"{what} with {', '.join(given)}")


# -- Functions -----------------------------------------------------------------------------------------------------


_OTHER_NAMES = {"equal": "eq", "fabs": "abs", "invert": "bitwise_not", "power": "pow", "rint": "round"}
"""NumPy's name of a function -> PyTorch's name, if it differs."""

_UFUNCS: dict[np.ufunc, Callable[..., torch.Tensor]] = {
    getattr(np, name): getattr(torch, _OTHER_NAMES.get(name, name)) for name in (
        "absolute", "add", "arccos", "arcsin", "arctan", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor",
        "ceil", "copysign", "cos", "cosh", "deg2rad", "divide", "equal", "exp", "expm1", "fabs", "floor",
        "floor_divide", "fmax", "fmin", "greater", "greater_equal", "hypot", "invert", "isfinite", "isinf", "isnan",
        "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
        "maximum", "minimum", "multiply", "negative", "not_equal", "positive", "power", "rad2deg", "reciprocal",
        "remainder", "rint", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc",
    )
}  # fmt: skip


_SAME_FOR_BOOL = frozenset({np.absolute, np.floor, np.ceil, np.trunc})
"""Functions that do not change booleans; PyTorch does not implement them for booleans."""


def _axes(values: TensorArray, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(values.ndim))
    return axis if isinstance(axis, tuple) else (axis,)


def _reduction(
    function: Callable[..., torch.Tensor], prepared: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
) -> Callable[..., TensorArray]:
    def reduce(values: TensorArray, axis: Axis = None, *, keepdims: bool = False) -> TensorArray:
        return TensorArray(function(prepared(values.tensor), dim=_axes(values, axis), keepdim=keepdims))

    return reduce


def _fractions(values: torch.Tensor) -> torch.Tensor:
    return values if values.is_floating_point() else values.double()


_sum, _max, _min = _reduction(torch.sum), _reduction(torch.amax), _reduction(torch.amin)
_mean = _reduction(torch.mean, _fractions)
_any, _all = _reduction(torch.any, torch.Tensor.bool), _reduction(torch.all, torch.Tensor.bool)

_REDUCTIONS: dict[np.ufunc, Callable[..., TensorArray]] = {
    np.add: _sum, np.maximum: _max, np.minimum: _min, np.logical_or: _any, np.logical_and: _all,
}  # fmt: skip


def _array(value: object, device: torch.device) -> TensorArray:
    return value if isinstance(value, TensorArray) else TensorArray(_operand(value, None, device))


def _device_of(*values: object) -> torch.device:
    return next(value.tensor.device for value in values if isinstance(value, TensorArray))


def _together(values: Sequence[object], dtype: DTypeLike | None = None) -> list[torch.Tensor]:
    """Return tensors of these on one device, in their common type or the given one."""
    device = _device_of(*values)
    common = _common_type(values) if dtype is None else np.dtype(dtype)
    return [_operand(value, common, device) for value in values]


def _common_type(values: Sequence[object]) -> np.dtype:
    kinds: list[Any] = [value.dtype if isinstance(value, TensorArray) else value for value in values]
    return np.result_type(*kinds)


def _where(condition: object, one: object, other: object) -> TensorArray:
    chosen = _operand(condition, np.dtype(bool), _device_of(condition, one, other))
    device = chosen.device
    common = _common_type((one, other))
    return TensorArray(torch.where(chosen, *(_operand(value, common, device) for value in (one, other))))


def _concatenate(
    arrays: Sequence[object], axis: int = 0, dtype: DTypeLike | None = None, casting: str = ""
) -> TensorArray:
    return TensorArray(torch.cat(_together(arrays, dtype), dim=axis))


def _stack(arrays: Sequence[object], axis: int = 0) -> TensorArray:
    return TensorArray(torch.stack(_together(arrays), dim=axis))


def _clip(values: object, low: Any = None, high: Any = None, out: TensorArray | None = None) -> TensorArray:
    bounded: Any = values
    for bound, function in ((low, np.maximum), (high, np.minimum)):
        if bound is not None:
            bounded = function(bounded, bound)
    result: TensorArray = bounded
    if out is None:
        return result
    out.tensor.copy_(result.tensor)
    return out


def _constant_like(number: int) -> Callable[..., TensorArray]:
    def constant(
        values: TensorArray, dtype: DTypeLike | None = None, *, shape: int | tuple[int, ...] | None = None
    ) -> TensorArray:
        size = values.shape if shape is None else (shape,) if isinstance(shape, int) else shape
        kind = values.tensor.dtype if dtype is None else torch_type(dtype)
        return TensorArray(torch.full(size, number, dtype=kind, device=values.tensor.device))

    return constant


_zeros_like, _ones_like = _constant_like(0), _constant_like(1)


def _full_like(values: TensorArray, fill_value: object, dtype: DTypeLike | None = None, **options: Any) -> TensorArray:
    result = _zeros_like(values, dtype, **options)
    result[...] = fill_value
    return result


def _take_along_axis(values: object, indices: object, axis: int) -> TensorArray:
    device = _device_of(values, indices)
    array, numbers = _array(values, device).tensor, _operand(indices, np.dtype(np.int64), device)
    return TensorArray(torch.take_along_dim(array, numbers, dim=axis))


def _take(values: object, indices: object, axis: int | None = None) -> TensorArray:
    device = _device_of(values, indices)
    array, numbers = _array(values, device), _operand(indices, np.dtype(np.int64), device)
    if axis is None:
        return TensorArray(array.tensor.reshape(-1)[numbers])
    taken = array.tensor.index_select(axis, numbers.reshape(-1))
    return TensorArray(taken.unflatten(axis, numbers.shape) if numbers.ndim else taken.squeeze(axis))


def _broadcast_to(values: object, shape: int | tuple[int, ...]) -> TensorArray:
    assert isinstance(values, TensorArray)
    return TensorArray(values.tensor.broadcast_to((shape,) if isinstance(shape, int) else shape))


def _norm(values: object, ord: object = None, axis: Axis = None, keepdims: bool = False) -> TensorArray:
    if ord is not None:
        _missing("numpy.linalg.norm with ord")
    assert isinstance(values, TensorArray)
    return TensorArray(torch.sqrt(_sum(TensorArray(torch.square(values.tensor)), axis, keepdims=keepdims).tensor))


def _cross(one: object, other: object, axis: int = -1) -> TensorArray:
    first, second = _together((one, other))
    return TensorArray(torch.linalg.cross(*torch.broadcast_tensors(first, second), dim=axis))


def _shares_memory(one: object, other: object) -> bool:
    if not (isinstance(one, TensorArray) and isinstance(other, TensorArray)):
        return False
    return bool(one.tensor.untyped_storage().data_ptr() == other.tensor.untyped_storage().data_ptr())


def _numbers(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.uint8) if values.dtype == torch.bool else values


def _of_one(function: Callable[..., torch.Tensor]) -> Callable[..., TensorArray]:
    def called(values: TensorArray, *args: object, **kwargs: object) -> TensorArray:
        return TensorArray(function(values.tensor, *args, **kwargs))

    return called


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: _where, np.concatenate: _concatenate, np.stack: _stack, np.clip: _clip,
    np.sum: _sum, np.mean: _mean, np.max: _max, np.amax: _max, np.min: _min, np.amin: _min, np.any: _any, np.all: _all,
    np.zeros_like: _zeros_like, np.empty_like: _zeros_like, np.ones_like: _ones_like, np.full_like: _full_like,
    np.take_along_axis: _take_along_axis, np.broadcast_to: _broadcast_to, np.linalg.norm: _norm, np.cross: _cross,
    np.shares_memory: _shares_memory, np.copy: TensorArray.copy, np.ravel: TensorArray.ravel, np.take: _take,
    np.reshape: lambda values, shape: TensorArray(values.tensor.reshape(shape)),
    np.expand_dims: _of_one(lambda values, axis: values.unsqueeze(axis)),
    np.squeeze: _of_one(lambda values, axis: values.squeeze(axis)),
    np.moveaxis: _of_one(torch.movedim), np.swapaxes: _of_one(torch.swapaxes),
    np.flip: _of_one(lambda values, axis: values.flip((axis,) if isinstance(axis, int) else axis)),
    np.roll: _of_one(lambda values, shift, axis: values.roll(shift, axis)),
    np.repeat: _of_one(lambda values, repeats, axis: values.repeat_interleave(repeats, axis)),
    np.argmax: _of_one(lambda values, axis: _numbers(values).argmax(axis)),
    np.argmin: _of_one(lambda values, axis: _numbers(values).argmin(axis)),
    np.cumsum: _of_one(lambda values, axis: values.cumsum(axis)),
    np.shape: lambda values: values.shape, np.ndim: lambda values: values.ndim, np.size: lambda values: values.size,
}  # fmt: skip
