"""The batch engine of ``rlenv_robot.make_vector(..., device="warp")``."""

from __future__ import annotations

from typing import Any

from rlenv_gpu.warp_batch import WarpBatch
from rlenv_robot.config.sim_settings import SimSettings
from rlenv_robot.tasks.task import Task
from rlenv_robot.vector.env import VectorEnvironment
from sim.model import SimModel

__all__ = ["warp_environments"]


def warp_environments(
    sim_model: SimModel, task: Task, num_envs: int, device: str | None, arrays: str, settings: SimSettings,
    *, seed: int | None, **options: Any,
) -> Any:  # fmt: skip
    """Make environments with physics on MuJoCo Warp, as a `rlenv_robot.registry.BatchEngine`.

    Raises:
        ValueError: MuJoCo Warp, or a batch of tensors, does not support a setting.
        RobotError: MuJoCo Warp is not installed (extra ``gpu``), or there is no such device.
        SpecError: the model uses a feature that is not supported here.
    """
    allowed = ("gains",) if arrays == "numpy" else ("gains", "randomise")
    refused = [key for key in settings if key not in allowed]
    if arrays == "torch" and options.pop("autoreset", "same_step") != "same_step":
        refused.append("another autoreset than 'same_step'")
    if refused:
        where = "device='cpu'" if arrays == "numpy" else "arrays='numpy'"
        raise ValueError(f"{' and '.join(refused)} need {where}, and this is a batch of {arrays} arrays on MuJoCo Warp")
    if arrays == "numpy":
        return VectorEnvironment(WarpBatch(sim_model, num_envs, device), task, seed=seed, **options)
    from rlenv_gpu.environment import TensorEnvironment  # needs PyTorch
    from rlenv_gpu.tensor_batch import TensorBatch

    batch = TensorBatch(sim_model, num_envs, device, randomise=settings.get("randomise"))
    return TensorEnvironment(batch, task, seed=seed, **options)
