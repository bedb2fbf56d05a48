"""Keep the state of a training in a file, from which ``--resume`` goes on. Needs PyTorch."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hal import RobotError
from hal.atomic_file import atomic_write
from recorder.json_data import JsonDict, JsonObject
from rlenv_robot.policies.budget import read_within

__all__ = ["TrainingState"]


class TrainingState(NamedTuple):
    """The state of a training.

    Attributes:
        identity: its settings and data, which differ from those of another training; JSON data.
        tensors: weights, counters, and states of the optimiser and of random generators.
    """

    identity: JsonDict
    tensors: JsonDict

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        with atomic_write(path) as part:
            torch.save({"identity": json.dumps(self.identity), **self.tensors}, part)

    @staticmethod
    def load(path: Path) -> TrainingState:
        """Read a state, without running code from it.

        Raises:
            RobotError: the file is missing, damaged, or too large.
        """
        try:
            read: dict[str, Any] = torch.load(io.BytesIO(read_within(path)), weights_only=True)
            identity = json.loads(read.pop("identity"))
        except FileNotFoundError:
            raise RobotError(f"there is no state of a training at {path}; leave out --resume to begin one") from None
        except Exception as error:  # torch's errors of damaged files have no common class
            raise RobotError(f"{path} can't be read as the state of a training: {error!r:.200}") from error
        return TrainingState(identity, read)

    def check(self, identity: JsonObject, path: Path) -> None:
        """Check that this is the state of the training that goes on.

        Args:
            identity: that of the training that goes on, JSON data.
            path: the state's file, for messages.

        Raises:
            RobotError: it is the state of another training.
        """
        for name, value in identity.items():
            if (other := self.identity.get(name)) != value:
                raise RobotError(
                    f"{path} is the state of a training with another {name}, {other!r:.80} in place of {value!r:.80}; "
                    "give the same options, or leave out --resume to begin anew"
                )
