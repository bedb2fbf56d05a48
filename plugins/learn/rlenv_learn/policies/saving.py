"""Write a network of dense layers as NumPy's ``.npz`` or as ONNX."""

from __future__ import annotations

from pathlib import Path

from hal import RobotError
from hal.field import JsonObject
from rlenv_learn.policies.network import NetworkPolicy

__all__ = ["save_network"]


def save_network(policy: NetworkPolicy, out: Path, about: JsonObject) -> None:
    """Write a policy as ``.npz``, or as ``.onnx`` with scaling inside the graph.

    Raises:
        RobotError: the packages that ONNX needs are missing, or the policy's vectors have no graph.
    """
    if out.suffix == ".npz":
        policy.save(out, about)
        return
    import torch
    from torch import nn

    from rlenv_learn.policies.flat import ACTIVATIONS, FlatPolicy, ScaledDifferences
    from rlenv_robot.adapters.flat import FlattenObservation

    if not isinstance(policy.vectors, FlattenObservation):
        raise RobotError(f"{out}: a policy of {type(policy.vectors).__name__} has no ONNX graph; write .npz")
    parts: list[nn.Module] = [ScaledDifferences(policy.vectors)] if policy.magnified else []
    for weights, bias in policy.layers:
        layer = nn.Linear(*weights.shape)
        layer.load_state_dict({"weight": torch.from_numpy(weights.T.copy()), "bias": torch.from_numpy(bias)})
        parts += [layer, ACTIVATIONS[policy.activation]()]
    last = [nn.Tanh()] if policy.squashed else []
    FlatPolicy(nn.Sequential(*parts[:-1], *last), policy.vectors).save_onnx(out, policy.task, about, policy.robot)
