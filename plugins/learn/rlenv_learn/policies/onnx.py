"""Run a policy from an ONNX file that includes the specs of its observations and actions."""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hal import Field, RobotError, RobotSpec, Spec, SpecMismatch
from hal.field import JsonDict, JsonObject
from rlenv_learn.policies.chunks import ChunkExecution, ChunkPolicy, NetworkPredictor
from rlenv_learn.policies.joint_units import JointMap, JointUnitsPolicy, is_so101
from rlenv_robot.policies.budget import HEADER_BYTES, budget_bytes, check_specs, over_budget, read_within
from rlenv_robot.policies.deployment import METADATA, robot_entries, robot_of

if TYPE_CHECKING:
    import onnx
    import onnxruntime

__all__ = ["METADATA", "NOISE", "OnnxPolicy", "load_onnx", "metadata", "open_session"]

_TYPES = {"float32": "float", "float64": "double"}
"""NumPy's name of a type -> ONNX's, where they differ."""

NOISE = "drawn_noise"
"""Input of a graph of chunks that draws them: standard normal noise, (batch, K, A)."""
_TRIAL_S = 30.0
"""Time limit of the first run, which finds a graph that does not end."""
_ARENA = "BFCArena"
"""Word in onnxruntime's message about exhausted memory."""
_LARGEST_ITEM = 8
"""Bytes of the largest element of a tensor."""
_NODE_BYTES = 4096
"""Approximate memory of a node in onnxruntime, bytes."""


def metadata(
    task: str,
    observation: Spec,
    action: Spec,
    about: JsonObject,
    robot: RobotSpec | None = None,
    chunk: ChunkExecution | None = None,
    noise: bool = False,
    entries: JsonObject | None = None,
) -> str:
    """Return the metadata of a policy's file, JSON.

    Args:
        task: name of the task of the training.
        observation: the spec of one observation.
        action: the spec of one action.
        about: JSON data for people about the training.
        robot: robot of the training; None if unknown.
        chunk: execution of chunks, if the graph takes a history of observations and returns a chunk (`OnnxPolicy`).
        noise: whether the graph draws the chunk from noise (`NOISE`).
        entries: further entries.
    """
    digests = {"observation": observation.digest, "action": action.digest}
    specs = {"observation": observation.to_dict(), "action": action.to_dict()}
    return json.dumps({
        "task": task, **specs, "digests": digests, "version": version("rlenv-robot"), "about": dict(about),
        **robot_entries(robot), **({} if chunk is None else {"chunk": chunk.to_dict()}),
        **({"noise": True} if noise else {}), **(entries or {}),
    })  # fmt: skip


class OnnxPolicy:
    """A deterministic policy, which onnxruntime runs on one thread of the CPU. Its file contains no code.

    The graph takes the observation fields by name, (batch, ...) in each field's dtype, and returns the action fields
    likewise. All scaling is inside the graph, so the file is complete.

    A graph of chunks takes (batch, H, ...) and returns (batch, K, ...), as its metadata says. Such a policy stores
    observations and chunks (`rlenv_learn.policies.chunks.ChunkPolicy`), which `reset` discards. A graph that draws its
    chunks takes noise beside the observation. The noise of each prediction is drawn anew, from a generator that has the
    seed 0 when the file is loaded, so that a run can be repeated; `seed` sets another.

    A policy that `rlenv-robot imitate` made of a data set observes the fields that were chosen there; others that a
    robot has besides are allowed.

    Args:
        path: the file, with all weights in it.

    Attributes:
        observation: the spec of one observation.
        action: the spec of one action.
        execution: execution of chunks; None for a policy without chunks.

    Raises:
        RobotError: the file is missing or not such a policy, its graph contradicts its metadata or needs more memory
            than `rlenv_robot.policies.budget` allows, or onnxruntime is missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self._session = str(path), open_session(Path(path))
        self._read_metadata(self._session.get_modelmeta().custom_metadata_map)
        self._rng = np.random.default_rng(0)
        self._check_graph()
        self._try_graph()
        self.seed(0)  # the trial drew noise, too
        self._chunks: ChunkPolicy | None = None
        if self.execution is not None:
            self._chunks = ChunkPolicy(self._run, Spec("inputs", self._inputs), self.action, self.execution)

    def _read_metadata(self, entries: Mapping[str, str]) -> None:
        if METADATA not in entries:
            raise RobotError(
                f"{self.path}: is ONNX without the specs of its observations and actions; save the "
                "policy with rlenv_learn.policies.flat.FlatPolicy.save_onnx (docs/trainers.md)"
            )
        if len(entries[METADATA]) > HEADER_BYTES:
            size = len(entries[METADATA])
            raise RobotError(f"{self.path}: its metadata has {size} characters, allowed are {HEADER_BYTES}")
        try:
            plain = json.loads(entries[METADATA])
            self.observation = Spec.from_dict(plain["observation"])
            self.action = Spec.from_dict(plain["action"])
            self.task, self.about, self.robot = str(plain["task"]), dict(plain["about"]), robot_of(plain)
            self.execution = ChunkExecution.from_dict(plain["chunk"]) if "chunk" in plain else None
            self.data_set: JsonDict | None = dict(plain["set"]) if "set" in plain else None
            self._noise = self._noise_field() if plain.get("noise") else None
            check_specs(self.path, self.observation, self.action)
        except (ValueError, KeyError, TypeError, AttributeError, MemoryError, RecursionError, RobotError) as error:
            raise RobotError(f"{self.path}: its metadata is damaged: {error!r}") from error

    def _noise_field(self) -> Field:
        if self.execution is None:
            raise ValueError("a graph draws chunks alone, and this one has no chunk")
        return Field(NOISE, (self.execution.length, sum(field.size for field in self.action)))

    def _check_graph(self) -> None:
        parts = {part.name: part for part in self._session.get_inputs()}
        noise = parts.pop(NOISE, None) if self._noise is not None else None
        if (noise is None) != (self._noise is None):
            raise RobotError(f"{self.path}: its metadata say that it draws its chunks, and its graph takes no noise")
        if noise is not None and self._noise is not None:
            _check_part(self.path, noise, self._noise, ())
        inputs = list(parts)
        outputs = [part.name for part in self._session.get_outputs()]
        specs = list(self.observation.names), list(self.action.names)
        # An observation that the network has no use for may be missing.
        if not set(inputs) <= set(specs[0]) or sorted(outputs) != sorted(specs[1]):
            raise RobotError(f"{self.path}: its graph takes {inputs} and gives {outputs}, its specs say {specs}")
        self._inputs = tuple(self.observation[name] for name in inputs)
        self._outputs = tuple(self.action[name] for name in outputs)
        history, length = ((), ()) if self.execution is None else ((self.execution.history,), (self.execution.length,))
        for part, field in zip(parts.values(), self._inputs, strict=True):
            _check_part(self.path, part, field, history)
        for part, field in zip(self._session.get_outputs(), self._outputs, strict=True):
            _check_part(self.path, part, field, length)

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that differ from the policy's.

        Raises:
            SpecMismatch: the specs differ; the error lists every difference.
        """
        if self.data_set is not None:  # fields were chosen when it was trained
            chosen = (observation[name] for name in self.observation.names if name in observation)
            observation = Spec(observation.name, tuple(chosen))
        problems = [f"observation: {line}" for line in self.observation.difference(observation)]
        problems += [f"action: {line}" for line in self.action.difference(action)]
        if problems:
            raise SpecMismatch(f"{self.path} was trained for another {self.task}", problems)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action, field -> array with the leading axes of the observation."""
        if self._chunks is not None:
            return self._chunks.act(observation)
        first = self._inputs[0]
        leading = np.shape(observation[first.name])[: np.ndim(observation[first.name]) - len(first.shape)]
        feed = {
            part.name: np.asarray(observation[part.name], part.numpy_dtype).reshape((-1, *part.shape))
            for part in self._inputs
        }
        outputs = self._run(feed)
        return {part.name: outputs[part.name].reshape((*leading, *part.shape)) for part in self._outputs}

    def chunk_predictor(self) -> NetworkPredictor | None:
        """Return the predictor of the graph's chunks, for frames that pass while it predicts; None without chunks.

        Raises:
            RobotError: the graph takes a history of observations.
        """
        if self.execution is None:
            return None
        return NetworkPredictor(self._run, self, Spec("inputs", self._inputs), self.action, self.execution)

    def _try_graph(self) -> None:
        """Run the graph once on zeros, so that an excessive one is refused before a robot moves.

        Raises:
            RobotError: the graph can't run, exceeds the budget, or does not end in time.
        """
        from onnxruntime import RunOptions

        history = () if self.execution is None else (self.execution.history,)
        size = sum(field.size * field.numpy_dtype.itemsize for field in self._inputs) * math.prod(history)
        if size > budget_bytes():
            raise over_budget(self.path, "one input of its graph", size)
        feed = {field.name: np.zeros((1, *history, *field.shape), field.numpy_dtype) for field in self._inputs}
        options = RunOptions()
        clock = threading.Timer(_TRIAL_S, setattr, (options, "terminate", True))
        clock.daemon = True
        clock.start()
        try:
            self._run(feed, options)
        finally:
            clock.cancel()

    def _run(
        self, feed: Mapping[str, np.ndarray], options: onnxruntime.RunOptions | None = None
    ) -> dict[str, np.ndarray]:
        """Return the outputs of the graph by their names, in the dtypes of the action."""
        if self._noise is not None:
            count = len(next(iter(feed.values())))
            feed = {**feed, NOISE: self._rng.standard_normal((count, *self._noise.shape), np.float32)}
        try:
            outputs = self._session.run(None, feed, options)
        except Exception as error:  # onnxruntime's classes of errors have no common one
            if options is not None and options.terminate:
                raise RobotError(
                    f"{self.path}: its graph did not end within {_TRIAL_S:g} s on an input of zeros"
                ) from error
            if _ARENA in str(error) or "bad_alloc" in str(error):
                raise over_budget(self.path, "its graph") from error
            raise RobotError(f"{self.path}: its graph can't be run: {error}") from error
        return {
            part.name: np.asarray(value, part.numpy_dtype) for part, value in zip(self._outputs, outputs, strict=True)
        }

    def predict(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the graph's output, name -> (batch, K, ...), for observations, name -> (batch, H, ...)."""
        return self._run({part.name: np.asarray(observation[part.name], part.numpy_dtype) for part in self._inputs})

    def seed(self, seed: int) -> None:
        """Set the generator of the noise from which a graph draws its chunks."""
        self._rng = np.random.default_rng(seed)

    def reset(self) -> None:
        """Discard the observations and chunks of the previous episode, if the policy stores any."""
        if self._chunks is not None:
            self._chunks.reset()


def load_onnx(path: str | Path) -> OnnxPolicy | JointUnitsPolicy:
    """Load an ONNX file; one that was trained on joints of an SO-101 in LeRobot's numbers drives our SO-101 too.

    Raises:
        RobotError: as for `OnnxPolicy`.
    """
    policy = OnnxPolicy(path)
    about = policy.data_set
    if about is None or not is_so101(about.get("robot"), policy.observation, policy.action):
        return policy
    try:
        joints = JointMap.from_dict(about["joints"]) if "joints" in about else None
        rate = None if about["rate_hz"] is None else float(about["rate_hz"])
        return JointUnitsPolicy(policy, joints, rate, str(path))
    except (ValueError, KeyError, TypeError) as error:
        raise RobotError(f"{path}: its metadata is damaged: {error!r}") from error


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """Return the graph of an ONNX file, ready to run on one thread of the CPU, within the budget of a policy's memory.

    Raises:
        RobotError: the file is missing, not such a file, or too large, or a package is missing; in that order.
    """
    try:
        content = read_within(path)  # from memory, so that a file can't name others to be read
    except FileNotFoundError:
        raise RobotError(f"{path}: there is no such policy file") from None
    except OSError as error:
        raise RobotError(f"{path}: can't be read: {error.strerror}") from error
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise RobotError("a policy in ONNX needs onnxruntime: pip install 'rlenv-robot[onnx]'") from error
    try:
        model = onnx.load_from_string(content)
    except Exception as error:  # protobuf's errors have no common class either
        raise RobotError(f"{path}: not a readable ONNX file: {error}") from error
    _check_sizes(path, model)
    del model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        _limit_memory(budget_bytes())
        # Folding would compute constants of any size while loading, in memory that has no limit.
        return onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
        )
    except Exception as error:  # onnxruntime has a class for every kind of damage, under no common one
        raise RobotError(f"{path}: not a readable ONNX file: {error}") from error


@functools.cache
def _limit_memory(most: int) -> None:
    """Limit the memory of all graphs in this process together, including intermediate values, by the first call."""
    import onnxruntime as ort

    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    arena = ort.OrtArenaCfg({"max_mem": most, "arena_extend_strategy": 1})  # 1: no more than is asked for
    ort.create_and_register_allocator(memory, arena)


def _check_sizes(path: Path, model: onnx.ModelProto) -> None:
    """Refuse a graph whose parts would exceed the budget while onnxruntime loads it, when no limit applies yet.

    These parts are sparse tensors, which become dense, and functions, which are copied to each of their calls. Tensors
    with data outside the file are refused too.

    Raises:
        RobotError: the parts exceed the budget, or data are outside the file.
    """
    import onnx

    dense, most = 0, budget_bytes()
    for part in _parts(model):
        if isinstance(part, onnx.TensorProto) and part.data_location == onnx.TensorProto.EXTERNAL:
            raise RobotError(f"{path}: its tensor {part.name!r:.80} lies outside the file; save it in one piece")
        if isinstance(part, onnx.SparseTensorProto):
            dense += math.prod(part.dims) * _LARGEST_ITEM
    if dense > most:
        raise over_budget(path, "a dense copy of its sparse tensors", dense)
    nodes = _expanded_nodes(model)
    if nodes * _NODE_BYTES > most:
        raise over_budget(path, "its graph with a copy of each function at each call", nodes * _NODE_BYTES)


def _parts(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it, at any depth."""
    waiting = [message]
    while waiting:
        part = waiting.pop()
        yield part
        for descriptor, value in part.ListFields():
            if descriptor.message_type is not None:
                waiting += value if hasattr(value, "append") or hasattr(value, "add") else [value]


def _expanded_nodes(model: onnx.ModelProto) -> int:
    """Return the number of a graph's nodes after its functions, which may call each other, are copied to each call."""
    import onnx

    bodies = {(function.domain, function.name): function for function in model.functions}
    calls = {
        key: [(part.domain, part.op_type) for part in _parts(body) if isinstance(part, onnx.NodeProto)]
        for key, body in bodies.items()
    }
    sizes: dict[tuple[str, str], int] = {}
    for _ in bodies:  # a function is counted once all that it calls are: at most as many rounds as functions
        for key, called in calls.items():
            if key not in sizes and all(name in sizes or name not in calls for name in called):
                sizes[key] = sum(sizes.get(name, 1) for name in called)
    nodes = [(part.domain, part.op_type) for part in _parts(model.graph) if isinstance(part, onnx.NodeProto)]
    return sum(sizes.get(name, 1) for name in nodes)


def _check_part(path: str, part: onnxruntime.NodeArg, field: Field, along: tuple[int, ...]) -> None:
    """Refuse an input or output whose type or shape differs from (batch, ...) of its field; symbolic sizes may be any.

    Args:
        path: the path of the file.
        part: the input or output.
        field: the field with its name.
        along: size of the axis of a history or chunk before those of the field; empty without one.

    Raises:
        RobotError: the type or the shape differs.
    """
    shape, expected = list(part.shape or ()), ("batch", *along, *field.shape)
    sizes = zip(shape[1:], (*along, *field.shape), strict=False)
    fits = len(shape) == len(expected) and not (isinstance(shape[0], int) and shape[0] != 1)
    fits = fits and all(not isinstance(size, int) or size == right for size, right in sizes)
    if not fits or part.type != f"tensor({_TYPES.get(field.dtype, field.dtype)})":
        raise RobotError(
            f"{path}: its graph has {part.name!r} as {part.type} of shape {shape}, its specs say {field.dtype} "
            f"of shape ({', '.join(map(str, expected))})"
        )
