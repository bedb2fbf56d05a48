"""Keep the scores of an unfinished search in a file, from which an interrupted training resumes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonObject

__all__ = ["SearchFile"]


class SearchFile:
    """The scores of each generation of an unfinished search, a line of JSON each.

    A search draws its candidates from its seed, so their scores suffice to repeat it without simulating anything.

    Args:
        policy: the file of the policy that is trained; the search's file is beside it and ends in ``.search``.
        about: data that decide which candidates a search draws, such as the task and the seed.

    Attributes:
        path: path of the file.
    """

    def __init__(self, policy: Path, about: JsonObject) -> None:
        self.path, self._about = policy.with_suffix(".search"), json.loads(json.dumps(about, default=str))

    def load(self) -> list[np.ndarray]:
        """Return the scores of all complete generations.

        Raises:
            RobotError: there is no such file, or it is of another search.
        """
        try:
            first, *lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]  # the last line may be incomplete
        except (OSError, ValueError):
            raise RobotError(f"there is no interrupted training in {self.path}: begin without --resume") from None
        about = json.loads(first)
        if about != self._about:
            raise RobotError(
                f"{self.path} is of another training, {about}, and this one is {self._about}: give the same command "
                "with --resume, or begin without --resume"
            )
        return [np.array(json.loads(line)) for line in lines]

    def begin(self) -> None:
        """Write an empty file in place of an earlier one.

        Raises:
            OSError: the file can't be written.
        """
        self.path.write_text(json.dumps(self._about) + "\n", encoding="utf-8")

    def add(self, scores: np.ndarray) -> None:
        """Append the scores of the next generation, shape (population,).

        Raises:
            OSError: the file can't be written.
        """
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(scores.tolist()) + "\n")

    def remove(self) -> None:
        """Delete the file after the search has ended."""
        self.path.unlink(missing_ok=True)
