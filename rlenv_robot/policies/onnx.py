"""Run a trained policy from an ONNX file that names its observations, its actions and their specs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hal import Field, RobotError, RobotSpec, Spec, SpecMismatch
from hal.field import JsonObject
from rlenv_robot.policies.chunks import ChunkExecution, ChunkPolicy
from rlenv_robot.policies.deployment import robot_entries, robot_of

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["METADATA", "OnnxPolicy", "metadata"]

METADATA = "rlenv_robot"
"""The key of our entry (JSON) in the file's ``metadata_props``."""

_TYPES = {"float32": "float", "float64": "double"}
"""NumPy's name -> ONNX's, where they differ."""


def metadata(
    task: str,
    observation: Spec,
    action: Spec,
    about: JsonObject,
    robot: RobotSpec | None = None,
    chunk: ChunkExecution | None = None,
) -> str:
    """Return a file's metadata: task, both specs, robot, digests, our version, and ``about`` for people.

    With ``chunk`` the graph takes a history of observations and gives a chunk of actions (see `OnnxPolicy`).
    """
    digests = {"observation": observation.digest, "action": action.digest}
    specs = {"observation": observation.to_dict(), "action": action.to_dict()}
    return json.dumps({
        "task": task, **specs, "digests": digests, "version": version("rlenv-robot"), "about": dict(about),
        **robot_entries(robot), **({} if chunk is None else {"chunk": chunk.to_dict()}),
    })  # fmt: skip


class OnnxPolicy:
    """A deterministic policy in onnxruntime on one thread of the CPU. A file holds a graph of numbers, and no code.

    The graph takes every observation field by its name, (batch, ...) in the field's dtype, and gives every action
    field likewise: scaling in and out is part of it, so nothing has to be known beside the file.

    A graph of chunks takes (batch, H, ...) and gives (batch, K, ...), as its metadata says; the policy then remembers
    observations and chunks (`rlenv_robot.policies.chunks.ChunkPolicy`), and `reset` begins an episode.

    Args:
        path: the file, whole in one piece (weights in a second file are not loaded).

    Attributes:
        observation, action: the specs of one observation and one action.
        execution: of chunks; None for a policy without a memory.

    Raises:
        RobotError: the file is missing or no policy of ours, its graph does not fit what it says of itself, or
            onnxruntime is missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self._session = str(path), _session(Path(path))
        self._read_metadata(self._session.get_modelmeta().custom_metadata_map)
        self._check_graph()
        self._chunks: ChunkPolicy | None = None
        if self.execution is not None:
            self._chunks = ChunkPolicy(self._answer, Spec("inputs", self._inputs), self.action, self.execution)

    def _read_metadata(self, entries: Mapping[str, str]) -> None:
        if METADATA not in entries:
            raise RobotError(
                f"{self.path}: is ONNX without the specs of its observations and actions; save the "
                "policy with rlenv_robot.policies.flat.FlatPolicy.save_onnx (docs/trainers.md)"
            )
        try:
            plain = json.loads(entries[METADATA])
            self.observation = Spec.from_dict(plain["observation"])
            self.action = Spec.from_dict(plain["action"])
            self.task, self.about, self.robot = str(plain["task"]), dict(plain["about"]), robot_of(plain)
            self.execution = ChunkExecution.from_dict(plain["chunk"]) if "chunk" in plain else None
        except (ValueError, KeyError, TypeError, AttributeError, RobotError) as error:
            raise RobotError(f"{self.path}: its metadata is damaged: {error!r}") from error

    def _check_graph(self) -> None:
        inputs = [part.name for part in self._session.get_inputs()]
        outputs = [part.name for part in self._session.get_outputs()]
        specs = list(self.observation.names), list(self.action.names)
        # An observation that the network has no use for may be missing.
        if not set(inputs) <= set(specs[0]) or sorted(outputs) != sorted(specs[1]):
            raise RobotError(f"{self.path}: its graph takes {inputs} and gives {outputs}, its specs say {specs}")
        self._inputs = tuple(self.observation[name] for name in inputs)
        self._outputs = tuple(self.action[name] for name in outputs)
        history, length = ((), ()) if self.execution is None else ((self.execution.history,), (self.execution.length,))
        for part, field in zip(self._session.get_inputs(), self._inputs, strict=True):
            _check_part(self.path, part, field, history)
        for part, field in zip(self._session.get_outputs(), self._outputs, strict=True):
            _check_part(self.path, part, field, length)

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse to run where an observation or an action means something else.

        Raises:
            SpecMismatch: with every difference.
        """
        problems = [f"observation: {line}" for line in self.observation.difference(observation)]
        problems += [f"action: {line}" for line in self.action.difference(action)]
        if problems:
            raise SpecMismatch(f"{self.path} was trained for another {self.task}", problems)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action by the names of the action spec, with the leading axes of the observation."""
        if self._chunks is not None:
            return self._chunks.act(observation)
        first = self._inputs[0]
        leading = np.shape(observation[first.name])[: np.ndim(observation[first.name]) - len(first.shape)]
        feed = {
            part.name: np.asarray(observation[part.name], part.numpy_dtype).reshape((-1, *part.shape))
            for part in self._inputs
        }
        answers = self._answer(feed)
        return {part.name: answers[part.name].reshape((*leading, *part.shape)) for part in self._outputs}

    def _answer(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs of the graph by their names, in the dtypes of the action."""
        outputs = self._session.run(None, feed)
        return {
            part.name: np.asarray(value, part.numpy_dtype) for part, value in zip(self._outputs, outputs, strict=True)
        }

    def reset(self) -> None:
        """Forget the observations and chunks of the episode before, where the policy has a memory."""
        if self._chunks is not None:
            self._chunks.reset()


def _session(path: Path) -> onnxruntime.InferenceSession:
    """Return the graph, ready to run; a missing file is reported before a missing package."""
    try:
        content = path.read_bytes()  # from memory, so that a file can't name others to be read
    except FileNotFoundError:
        raise RobotError(f"{path}: there is no such policy file") from None
    except OSError as error:
        raise RobotError(f"{path}: can't be read: {error.strerror}") from error
    try:
        import onnxruntime
    except ImportError as error:
        raise RobotError("a policy in ONNX needs onnxruntime: pip install 'rlenv-robot[onnx]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for every kind of damage, under no common one
        raise RobotError(f"{path}: not a readable ONNX file: {error}") from error


def _check_part(path: str, part: onnxruntime.NodeArg, field: Field, along: tuple[int, ...]) -> None:
    """Refuse an input or output that is not (batch, ...) of the field; sizes without a number may be anything.

    Args:
        path: of the file.
        part: the input or output.
        field: the field of its name.
        along: the axis of a history or a chunk before those of the field; empty without one.
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
