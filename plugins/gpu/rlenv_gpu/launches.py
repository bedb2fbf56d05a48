"""Count the operations that the host enqueues on a device, and those for which it waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["CountedLaunches"]

_WAITING = ("_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero")
"""PyTorch's operations whose result is a number on the host, or has a shape that depends on numbers of the device."""


class CountedLaunches(TorchDispatchMode):  # type: ignore[misc]
    """Count PyTorch's operations within the block. A replay of a recording is none of them.

    Attributes:
        launches: operation -> number of calls; views and allocations, which enqueue nothing, are left out.
        waits: operation -> number of calls for which the host waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.partition("::")[2]
        aliases = [returned.alias_info for returned in function._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in aliases)
        to_host = getattr(result, "is_cuda", True) is False and any(getattr(arg, "is_cuda", False) for arg in args)
        if name in _WAITING or (to_host and not view):
            self.waits[name] += 1
        if not view and not name.startswith(("empty", "new_empty")):
            self.launches[name] += 1
        return result
