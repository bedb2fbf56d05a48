"""A trained policy in an ONNX file: named observations in, named actions out, and for which specs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError, Spec, SpecMismatch

__all__ = ["METADATA", "OnnxPolicy", "metadata"]

METADATA = "rlenv_robot"
"""The key of our entry (JSON) in the file's ``metadata_props``."""


def metadata(task: str, observation: Spec, action: Spec, about: Mapping[str, Any]) -> str:
    """What a file says of itself: the task, both specs with their digests, our version, and ``about`` for people."""
    digests = {"observation": observation.digest, "action": action.digest}
    specs = {"observation": observation.to_plain(), "action": action.to_plain()}
    return json.dumps(
        {"task": task, **specs, "digests": digests, "version": version("rlenv-robot"), "about": dict(about)}
    )


class OnnxPolicy:
    """Runs in onnxruntime on one thread of the CPU; deterministic. No code comes from a file, only a graph of numbers.

    The graph takes every observation field by its name, (batch, ...) in the field's dtype, and gives every action
    field likewise: scaling in and out is part of it, so nothing has to be known beside the file.

    Args:
        path: the file, whole in one piece (weights in a second file are not loaded).

    Raises:
        RobotError: onnxruntime is missing, the file is missing or no policy of ours, or its graph does not fit what it
            says of itself.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise RobotError("a policy in ONNX needs onnxruntime: pip install 'rlenv-robot[onnx]'") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            content = Path(path).read_bytes()  # from memory, so that a file can't name others to be read
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except FileNotFoundError:
            raise RobotError(f"{path}: there is no such policy file") from None
        except Exception as error:  # onnxruntime has a class for every kind of damage, under no common one
            raise RobotError(f"{path}: not a readable ONNX file: {error}") from error
        self.path, self._session = str(path), session
        self._read_metadata(session.get_modelmeta().custom_metadata_map)
        self._check_graph()

    def _read_metadata(self, entries: Mapping[str, str]) -> None:
        if METADATA not in entries:
            raise RobotError(f"{self.path}: says nothing of its specs; save it with FlatPolicy.save_onnx")
        try:
            plain = json.loads(entries[METADATA])
            self.observation = Spec.from_plain(plain["observation"])
            self.action = Spec.from_plain(plain["action"])
            self.task, self.about = str(plain["task"]), dict(plain["about"])
        except (ValueError, KeyError, TypeError, AttributeError, RobotError) as error:
            raise RobotError(f"{self.path}: what it says of its specs is damaged: {error!r}") from error

    def _check_graph(self) -> None:
        found = [part.name for part in self._session.get_inputs()], [part.name for part in self._session.get_outputs()]
        wanted = list(self.observation.names), list(self.action.names)
        # An observation that the network has no use for may be missing.
        if not set(found[0]) <= set(wanted[0]) or sorted(found[1]) != sorted(wanted[1]):
            raise RobotError(f"{self.path}: its graph takes {found[0]} and gives {found[1]}, its specs say {wanted}")
        self._inputs = [self.observation[name] for name in found[0]]
        self._outputs = [self.action[name] for name in found[1]]

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
        """By the names of the action spec, with the leading axes of the observation."""
        first = self._inputs[0]
        leading = np.shape(observation[first.name])[: np.ndim(observation[first.name]) - len(first.shape)]
        feed = {
            part.name: np.asarray(observation[part.name], part.numpy_dtype).reshape((-1, *part.shape))
            for part in self._inputs
        }
        found = self._session.run(None, feed)
        return {
            part.name: np.asarray(value, part.numpy_dtype).reshape((*leading, *part.shape))
            for part, value in zip(self._outputs, found, strict=True)
        }
