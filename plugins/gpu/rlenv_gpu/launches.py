"""Count the operations that the host enqueues on a device, and those for which it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self, TypeAlias

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["CountedLaunches", "Operation", "intercepted"]

Operation: TypeAlias = Any
"""An operation of PyTorch's dispatcher (``torch._ops.OpOverload``)."""

_WAITING = ("_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero")
"""PyTorch's operations whose result is a number on the host, or has a shape that depends on numbers of the device."""


def intercepted(
    run: Callable[[Operation, tuple[Any, ...], dict[str, Any]], object],
) -> AbstractContextManager[object]:
    """Return a block within which PyTorch's operations are run by a function.

    Args:
        run: gets an operation and its arguments, and returns its result.
    """

    def dispatch(
        mode: object, operation: Operation, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        return run(operation, args, kwargs or {})

    block: AbstractContextManager[object] = type(
        "Intercepted", (TorchDispatchMode,), {"__torch_dispatch__": dispatch}
    )()
    return block


class CountedLaunches:
    """Count PyTorch's operations within the block. A replay of a recording is none of them.

    Attributes:
        launches: operation -> number of calls; views and allocations, which enqueue nothing, are left out.
        waits: operation -> number of calls for which the host waits.
    """

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self._block = intercepted(self._count)

    def __enter__(self) -> Self:
        self._block.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._block.__exit__(*exc)

    def _count(self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        result = operation(*args, **kwargs)
        name = operation._schema.name.partition("::")[2]
        aliases = [returned.alias_info for returned in operation._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in aliases)
        to_host = getattr(result, "is_cuda", True) is False and any(getattr(arg, "is_cuda", False) for arg in args)
        if name in _WAITING or (to_host and not view):
            self.waits[name] += 1
        if not view and not name.startswith(("empty", "new_empty")):
            self.launches[name] += 1
        return result
