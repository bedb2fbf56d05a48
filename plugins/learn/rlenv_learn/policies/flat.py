"""Turn a PyTorch network over vectors into a policy over named fields, and save it as ONNX."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hal import RobotError, RobotSpec, Spec
from recorder.json_data import JsonObject
from rlenv_learn.policies.network import Activation, NetworkPolicy
from rlenv_learn.policies.onnx import METADATA, NOISE, metadata
from rlenv_robot.adapters.flat import FlattenObservation

__all__ = ["ACTIVATIONS", "FlatGraph", "FlatPolicy", "ScaledDifferences", "export_onnx", "flat_vector"]

ACTIVATIONS: dict[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}
"""The layers of PyTorch that `NetworkPolicy` computes in NumPy."""


class FlatPolicy:
    """A policy of a network from ``flat``'s observation vectors (batch, D) to its action vectors (batch, A).

    Args:
        actor: the network, in evaluation mode. Its actions are clipped to -1 and 1.
        flat: the vectors of observations and actions.
    """

    def __init__(self, actor: nn.Module, flat: FlattenObservation) -> None:
        self.actor, self.flat = actor, flat

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action, field -> array with the leading axes of the observation."""
        vector = self.flat.observe(observation)
        with torch.no_grad():
            chosen = self.actor(torch.from_numpy(vector.reshape(-1, self.flat.size))).numpy()
        return self.flat.act(chosen.reshape((*vector.shape[:-1], self.flat.action_size)), observation)

    def save_onnx(
        self, path: str | Path, task: str, about: JsonObject | None = None, robot: RobotSpec | None = None
    ) -> None:
        """Write an ONNX file for `rlenv_learn.policies.onnx.OnnxPolicy`, with all scaling inside the graph.

        Args:
            path: ending in ``.onnx``.
            task: name of the task of the training.
            about: JSON data for people about the training.
            robot: robot of the training, with the range of its gains and delays, such as ``envs.batch.spec``.

        Raises:
            RobotError: the packages onnx or onnxscript are missing.
        """
        text = metadata(task, self.flat.observation, self.flat.action, about or {}, robot)
        export_onnx(FlatGraph(self.actor, self.flat), self.flat.observation, self.flat.action, path, text)

    def save_npz(
        self, path: str | Path, task: str, about: JsonObject | None = None, robot: RobotSpec | None = None
    ) -> None:
        """Write a file for `rlenv_learn.policies.network.NetworkPolicy`, which needs NumPy only.

        The arguments are those of `save_onnx`; the file ends in ``.npz``.

        Raises:
            RobotError: the network is no `torch.nn.Sequential` of dense layers with one kind of activation between
                them, after a `ScaledDifferences` or none.
        """
        parts = list(self.actor) if isinstance(self.actor, nn.Sequential) else [self.actor]
        magnified = ScaledDifferences.MAGNIFIED if isinstance(parts[0], ScaledDifferences) else 0.0
        dense, between = parts[bool(magnified) :: 2], {type(part) for part in parts[bool(magnified) + 1 :: 2]}
        names = {part: name for name, part in ACTIVATIONS.items()}
        known = all(isinstance(part, nn.Linear) for part in dense) and len(between) <= 1 and between <= set(names)
        if not known or isinstance(parts[-1], tuple(names)):
            raise RobotError(f"{path}: this network is not made of dense layers and one activation; write .onnx")
        layers = [(part.weight.detach().cpu().numpy().T, part.bias.detach().cpu().numpy()) for part in dense]
        activation = names[between.pop()] if between else "tanh"
        NetworkPolicy(layers, self.flat, task, robot, magnified, activation).save(path, about or {})


def export_onnx(
    graph: nn.Module,
    observation: Spec,
    action: Spec,
    path: str | Path,
    text: str,
    history: tuple[int, ...] = (),
    noise: tuple[int, ...] = (),
) -> None:
    """Write a network over named fields as an ONNX file for `rlenv_learn.policies.onnx.OnnxPolicy`.

    Args:
        graph: the network. It takes the observation fields in the order of their spec, (batch, ...) in each field's
            dtype, and returns the action fields in the same way.
        observation: the spec of observations.
        action: the spec of actions.
        path: the path of the file.
        text: its metadata (`rlenv_learn.policies.onnx.metadata`).
        history: (H,) if the graph takes (batch, H, ...), else empty.
        noise: (K, A) if the graph takes noise (batch, K, A) after the observation, else empty.

    Raises:
        RobotError: the packages onnx or onnxscript are missing.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (PyTorch's exporter needs it)
    except ImportError as error:
        raise RobotError("to save ONNX: pip install 'rlenv-robot[onnx]'") from error
    content = io.BytesIO()
    example = tuple(torch.from_numpy(np.zeros((2, *history, *part.shape), part.numpy_dtype)) for part in observation)
    names = list(observation.names)
    if noise:
        example, names = (*example, torch.zeros((2, *noise))), [*names, NOISE]
    batch = torch.export.Dim("batch")
    with _quietly():
        torch.onnx.export(
            graph.eval(),
            example,
            input_names=names,
            output_names=list(action.names),
            dynamic_shapes=(tuple({0: batch} for _ in example),),
            dynamo=True,
            verbose=False,
        ).save(content)
    model = onnx.load_from_string(content.getvalue())
    model.metadata_props.add(key=METADATA, value=text)
    Path(path).write_bytes(model.SerializeToString())


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress messages of PyTorch's exporter about its packages, deprecations and folded constants."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


class FlatGraph(nn.Module):
    """A network with the conversions of `FlattenObservation` in PyTorch; a test compares the two.

    The module takes the observation fields in the order of their spec, (batch, ...), and returns the action fields in
    the same way.

    Args:
        actor: the network, from observation vectors to action vectors.
        flat: the conversion to and from vectors.
    """

    def __init__(self, actor: nn.Module, flat: FlattenObservation) -> None:
        super().__init__()
        self.actor, self.flat = actor, flat
        self.register_buffer("scale", torch.from_numpy(flat.scale))
        self.register_buffer("strides", torch.from_numpy(flat.strides).float())
        for name, bound in zip(("low", "high"), flat.action_bounds, strict=True):
            self.register_buffer(name, torch.from_numpy(bound))

    def forward(self, *fields: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the fields of the action."""
        flat = self.flat
        observation = dict(zip(flat.observation.names, fields, strict=True))
        share = self.actor(flat_vector(flat, observation, self.scale)).clamp(-1.0, 1.0)
        values = self.low * (0.5 - share / 2) + self.high * (0.5 + share / 2)
        if flat.held:
            values = torch.where(self.strides > 0, self._centre(observation, share) + self.strides * share, values)
        values = torch.minimum(torch.maximum(values, self.low), self.high)
        named, place = [], 0
        for action_field in flat.action:
            part = values[:, place : place + action_field.size]
            named.append(part.unflatten(1, action_field.shape) if action_field.shape else part[:, 0])
            place += action_field.size
        return tuple(named)

    def _centre(self, observation: Mapping[str, torch.Tensor], share: torch.Tensor) -> torch.Tensor:
        middles = {name: observation[middle].flatten(1) for name, middle in self.flat.held.items()}
        parts = [
            middles[action_field.name][:, : action_field.size]
            if action_field.name in middles
            else torch.zeros_like(share[:, : action_field.size])
            for action_field in self.flat.action
        ]
        return torch.cat(parts, dim=1)


def flat_vector(flat: FlattenObservation, observation: Mapping[str, torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
    """Return the observation vectors (batch, D) of `FlattenObservation.observe`, in PyTorch.

    Args:
        flat: the conversion to vectors.
        observation: name -> (batch, ...).
        scale: ``flat.scale`` as a tensor.
    """
    parts = [observation[name] for name in flat.observation.names]
    for gap in flat.differences:
        minuend, subtrahend = observation[gap.minuend], observation[gap.subtrahend]
        if subtrahend.ndim < minuend.ndim:  # the same for every row
            subtrahend = subtrahend[:, None]
        parts.append(minuend - subtrahend)
    flattened = [(value.flatten(1) if value.ndim > 1 else value[:, None]).float() for value in parts]
    return (torch.cat(flattened, dim=1) / scale).clamp(-flat.LIMIT, flat.LIMIT)


# -- Magnified differences, for grasps that depend on millimetres -----------------------------------------


class ScaledDifferences(nn.Module):
    """A first layer without weights that appends magnified differences to ``flat``'s vector.

    The differences are the last elements of the vector (see `rlenv_robot.adapters.flat.FlattenObservation`). For each,
    ``tanh(MAGNIFIED * difference)`` is appended, which reaches its range at a fifth of the difference's scale: at 1 cm
    if the scale is 5 cm.

    Attributes:
        size: number of elements of the output.

    Args:
        flat: the conversion to vectors.
    """

    MAGNIFIED = 5.0

    def __init__(self, flat: FlattenObservation) -> None:
        super().__init__()
        self._gaps = flat.difference_size
        self.size = flat.size + self._gaps

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the vector with its magnified differences: shape (..., D) to (..., ``size``)."""
        gaps = vector[..., vector.shape[-1] - self._gaps :]
        return torch.cat([vector, torch.tanh(self.MAGNIFIED * gaps)], dim=-1)
