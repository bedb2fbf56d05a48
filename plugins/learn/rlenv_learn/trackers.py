"""Write the metrics of a training to TensorBoard and to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from hal import RobotError
from hal.field import JsonObject

__all__ = ["TensorBoard", "WeightsAndBiases"]


class TensorBoard:
    """TensorBoard's event file, by tensorboardX or, without that, by PyTorch's writer.

    Args:
        target: folder in which the run's own one is made; ``tensorboard`` where it is empty.
        run: the run's name.
        settings: the settings of the training, written beside its metrics.

    Raises:
        RobotError: both packages are missing.
    """

    def __init__(self, target: str, run: str, settings: JsonObject) -> None:
        folder = Path(target or "tensorboard") / run
        for module in ("tensorboardX", "torch.utils.tensorboard"):
            try:
                writer: Any = import_module(module).SummaryWriter
                break
            except ImportError:
                continue
        else:
            raise RobotError("TensorBoard needs a package: pip install 'rlenv-robot[tensorboard]'")
        self._writer = writer(str(folder))
        if settings:
            lines = [f"| {key} | {value} |" for key, value in settings.items()]
            self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))

    def add(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Write metrics by name, with the number of control steps made so far."""
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, steps)
        self._writer.flush()

    def close(self) -> None:
        """Write what is buffered, and end."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; ``WANDB_MODE=offline`` keeps it on this machine.

    Args:
        target: project; ``rlenv-robot`` where it is empty.
        run: the run's name.
        settings: the settings of the training, written beside its metrics.

    Raises:
        RobotError: the package is missing, or the service refused the run.
    """

    def __init__(self, target: str, run: str, settings: JsonObject) -> None:
        try:
            wandb: Any = import_module("wandb")
        except ImportError as error:
            raise RobotError("Weights & Biases needs a package: pip install 'rlenv-robot[wandb]'") from error
        try:
            self._run = wandb.init(project=target or "rlenv-robot", name=run, config=settings)
        except wandb.Error as error:
            raise RobotError(
                f"Weights & Biases refused the run: {error}. Sign in with `wandb login`, or set WANDB_MODE=offline to "
                "keep the run on this machine"
            ) from error

    def add(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Write metrics by name, with the number of control steps made so far."""
        self._run.log(dict(metrics), step=steps)

    def close(self) -> None:
        """Write what is buffered, and end."""
        self._run.finish()
