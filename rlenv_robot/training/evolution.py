"""Search for parameters by evolution (separable CMA-ES), which needs scores but no gradients, and resume a search."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonObject

__all__ = ["Generation", "SearchFile", "SearchSettings", "search"]


_FLAT = 5
"""Number of generations with equal scores for all candidates after which a search gives up."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The settings of a search.

    Attributes:
        population: candidates in each generation.
        sigma: initial step size, in the unit of the parameters.
        generations: largest number of generations.
        seconds: wall time after which no further generation begins. A search that ends by it is not reproducible.
        seed: the seed of the drawn candidates.
    """

    population: int = 48
    sigma: float = 0.3
    generations: int = 400
    seconds: float = math.inf
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a search.

    Attributes:
        number: counted from 0.
        best: the best score.
        median: the median score.
        mean: mean of the distribution of candidates, shape (n,).
        elapsed_s: time since the start, seconds.
        share: completed share of the search, 0 to 1, by generations or by seconds.
        scores: the scores of all candidates, in the order in which they were drawn, shape (population,).
    """

    number: int
    best: float
    median: float
    mean: np.ndarray
    elapsed_s: float
    share: float
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def metrics(self) -> dict[str, float]:
        """Return the scores as metrics for a tracker."""
        return {"generation/best": self.best, "generation/median": self.median}


def search(
    start: np.ndarray,
    score: Callable[[np.ndarray, int], np.ndarray],
    settings: SearchSettings,
    earlier: Sequence[np.ndarray] = (),
) -> Iterator[Generation]:
    """Maximise a score by CMA-ES with a diagonal covariance, which takes negligible time compared with episodes.

    Source: Ros and Hansen 2008, "A simple modification in CMA-ES achieving linear time and space complexity".

    Args:
        start: the initial mean, shape (n,).
        score: from a population (p, n) and the generation's number to scores (p,), higher is better. Within a
            generation every candidate should run the same episodes, and the next generation other ones.
        settings: see `SearchSettings`.
        earlier: scores of the first generations of the same search, which was interrupted. They are taken in place of
            ``score``, so that the search ends exactly where it would have ended without the interruption.

    Yields:
        Each generation, once all its candidates have scores.

    Raises:
        RobotError: the package ``cmaes`` is missing, or all candidates of the first generations have equal scores.
    """
    try:
        from cmaes import SepCMA
    except ImportError as error:
        raise RobotError("training needs the package cmaes: pip install 'rlenv-robot[demo]'") from error
    # A copy, since the optimizer changes its mean in place.
    optimizer = SepCMA(
        mean=np.array(start, float), sigma=settings.sigma, seed=settings.seed, population_size=settings.population
    )
    begun, varied = time.monotonic(), False
    for number in range(settings.generations):
        candidates = np.stack([optimizer.ask() for _ in range(settings.population)])
        scores = earlier[number] if number < len(earlier) else score(candidates, number)
        optimizer.tell([(candidate, -value) for candidate, value in zip(candidates, scores, strict=True)])
        elapsed = time.monotonic() - begun
        share = min(1.0, max((number + 1) / settings.generations, elapsed / settings.seconds))
        last = share == 1.0
        varied = varied or float(np.ptp(scores)) > 0
        if not varied and (last or number + 1 == _FLAT):
            raise RobotError(
                f"all {(number + 1) * settings.population} candidates earned the same return, {scores[0]:g}, so the "
                "search has no direction. To train, choose a reward that varies in a profile's [task.options]: "
                "rewards = 'dense', or reward_from for a MuJoCo model. To retrain, record more varied episodes"
            )
        best, median = float(scores.max()), float(np.median(scores))
        yield Generation(number, best, median, optimizer.mean.copy(), elapsed, share, scores)
        if last:
            return


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
