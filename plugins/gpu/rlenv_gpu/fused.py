"""Compile functions of tensors into few kernels for a GPU, from the operations that a call of them makes."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._triton import has_triton

from rlenv_gpu.launches import Operation, intercepted
from rlenv_gpu.packed import Nested, tensors_in
from rlenv_gpu.recording import close_enough
from rlenv_gpu.tensor_array import TensorArray

__all__ = ["Compiler", "Fused", "inductor", "run_as_written"]

_log = logging.getLogger(__name__)

Compiler: TypeAlias = Callable[[torch.fx.GraphModule, Sequence[torch.Tensor]], Callable[..., Sequence[torch.Tensor]]]
"""Function that compiles a graph of PyTorch's operations for inputs of these shapes."""


def inductor() -> Compiler | None:
    """Return PyTorch's compiler for a GPU; None where Triton is not installed."""
    if not has_triton():
        return None

    def compiled(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Sequence[torch.Tensor]]:
        import torch._inductor  # takes a second

        function: Callable[..., Sequence[torch.Tensor]] = torch._inductor.compile(graph, list(inputs))
        return function

    return compiled


def run_as_written(
    graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return the graph itself, whose operations run one by one (a `Compiler`)."""
    return graph


class Fused:
    """Call a pure function of tensors. From its second call on, run it as one compiled function with few kernels.

    The operations of a call are written down as a graph, which is compiled; so the function must make the same
    operations in every call. It changes no tensor that it did not make itself. A compiled function rounds differently:
    its first results are compared with those of a call. A function that can't be compiled, or differs, is called as it
    is, and the log gives the reason.

    Args:
        function: takes and returns tensors and `TensorArray`, alone or in nested dictionaries and tuples. It may read
            other tensors, if they stay in their places.
        compiler: compiles the graph, as `inductor`; None calls the function every time.
        name: of the function, for the log.

    Attributes:
        refusal: why the function is not compiled; empty before the attempt, and if it is.
    """

    def __init__(self, function: Callable[..., Nested], compiler: Compiler | None, name: str) -> None:
        self._function, self._compiler, self._name, self._calls = function, compiler, name, 0
        self._compiled: Callable[..., Sequence[torch.Tensor]] | None = None
        self._others: list[torch.Tensor] = []
        self._build: Callable[[Iterator[torch.Tensor]], Nested] = next
        self.refusal = ""

    @property
    def is_compiled(self) -> bool:
        """Whether calls run the compiled function."""
        return self._compiled is not None

    def __call__(self, *args: Nested) -> Nested:
        """Return the function's result."""
        self._calls += 1
        if self._compiled is None and self._compiler is not None and self._calls > 1:
            self._compile(self._compiler, args)
        if self._compiled is None:
            return self._function(*args)
        return self._build(iter(self._compiled(*tensors_in(args), *self._others)))

    def _compile(self, compiler: Compiler, args: tuple[Nested, ...]) -> None:
        given, tape = list(tensors_in(args)), _Tape()
        try:
            with intercepted(tape.run):
                result = self._function(*args)
            wanted = list(tensors_in(result))
            graph, others = tape.graph(given, wanted)
            compiled = compiler(graph, [*given, *others])
            differs = not close_enough(list(compiled(*given, *others)), wanted)
        except Exception as error:  # a compiler may fail in any way, and the function works without it
            self._call_from_now_on(f"{type(error).__name__}: {error}")
            return
        if differs:
            self._call_from_now_on("the compiled function returns something else")
            return
        self._compiled, self._others, self._build = compiled, others, _builder(result)

    def _call_from_now_on(self, reason: str) -> None:
        self._compiler, self.refusal = None, reason
        _log.warning("%s is not compiled, and slower: %s", self._name, reason)


class _Tape:
    """Write down the operations that it runs."""

    def __init__(self) -> None:
        self._calls: list[
            tuple[Operation, tuple[Nested, ...], dict[str, Nested], Nested]
        ] = []  # these keep the tensors' identities
        self._own: set[int] = set()  # places of memory that was allocated by operations

    def run(self, function: Operation, args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> Nested:
        """Run an operation and return its result.

        Raises:
            RuntimeError: it changes a tensor that no operation before it made.
        """
        named = {argument.name: value for argument, value in zip(function._schema.arguments, args, strict=False)}
        for argument in function._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                changed = {**named, **kwargs}.get(argument.name)
                for tensor in _tensors(changed):
                    if tensor.numel() and _place(tensor) not in self._own:
                        raise RuntimeError(f"{function} changes a tensor that the function did not make")
        result = function(*args, **kwargs)
        taken = set(map(_place, _tensors((args, kwargs))))
        self._own.update({_place(tensor) for tensor in _tensors(result)} - taken)
        self._calls.append((function, args, kwargs, result))
        return result

    def graph(
        self, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
    ) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
        """Return the operations as a graph, and its inputs beside the given ones.

        Raises:
            RuntimeError: the operations read numbers of the host.
        """
        made = {id(tensor) for _, _, _, result in self._calls for tensor in _tensors(result)}
        read = [*_tensors([(args, kwargs) for _, args, kwargs, _ in self._calls]), *results]
        known = {id(tensor) for tensor in given}
        others = list({id(tensor): tensor for tensor in read if id(tensor) not in made | known}.values())
        if any(other.device != results[0].device for other in others):
            raise RuntimeError("the function reads numbers of the host")
        graph = torch.fx.Graph()
        nodes: dict[int, torch.fx.Node] = {}
        for number, tensor in enumerate([*given, *others]):
            nodes[id(tensor)] = graph.placeholder(f"input_{number}")

        def node_of(value: Nested) -> Nested:
            return nodes[id(value)] if isinstance(value, torch.Tensor) else value

        for function, args, kwargs, result in self._calls:
            node = graph.call_function(function, *tree_map(node_of, (args, kwargs)))
            if isinstance(result, torch.Tensor):
                nodes.setdefault(id(result), node)
            else:
                for number, part in enumerate(result or ()):
                    nodes.setdefault(id(part), graph.call_function(operator.getitem, (node, number)))
        graph.output([node_of(result) for result in results])
        return torch.fx.GraphModule({}, graph), others


def _tensors(value: Nested) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _builder(value: Nested) -> Callable[[Iterator[torch.Tensor]], Nested]:
    """Return a function that puts tensors, in the order of `tensors_in`, into a structure like that of ``value``."""
    if isinstance(value, TensorArray):
        return lambda tensors: TensorArray(next(tensors))
    if isinstance(value, torch.Tensor):
        return next
    if isinstance(value, Mapping):
        parts = {name: _builder(part) for name, part in value.items()}
        return lambda tensors: {name: part(tensors) for name, part in parts.items()}
    if isinstance(value, tuple):
        items = [_builder(part) for part in value]
        make = type(value)._make if hasattr(value, "_make") else tuple  # a named tuple
        return lambda tensors: make([part(tensors) for part in items])
    return lambda tensors: value
