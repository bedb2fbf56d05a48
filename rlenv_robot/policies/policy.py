"""Choose actions, and load policies from files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from hal import RobotError, Spec, SpecMismatch
from rlenv_robot.config.plugins import PluginTable

if TYPE_CHECKING:
    from rlenv_robot.policies.feedback import SearchedPolicy

__all__ = [
    "PLAIN",
    "Draw",
    "EpisodicPolicy",
    "Policy",
    "RandomPolicy",
    "SavedPolicy",
    "StochasticPolicy",
    "ZeroPolicy",
    "begin_episode",
    "load_policy",
    "load_searched",
]


class Policy(Protocol):
    """Anything that chooses actions."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action, by the names of the action spec, for observations with any leading axes."""
        ...


class Draw(NamedTuple):
    """An action that was drawn, with the distribution that it was drawn from.

    Attributes:
        action: by the names of the action spec.
        log_probability: of the action: the logarithm of its density, or of its probability where actions are discrete.
        behaviour: the distribution's parameters by the names in the policy's ``behaviour``; empty where it has none.
    """

    action: dict[str, np.ndarray]
    log_probability: float
    behaviour: Mapping[str, np.ndarray] = MappingProxyType({})


@runtime_checkable
class StochasticPolicy(Policy, Protocol):
    """A policy that draws its actions, and tells from which distribution; `run_episode` has both recorded."""

    @property
    def behaviour(self) -> Spec:
        """The parameters of the distribution, such as mean and standard deviation or logits; empty for none."""
        ...

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        """Draw an action for one observation."""
        ...


@runtime_checkable
class EpisodicPolicy(Policy, Protocol):
    """A policy with a memory, such as of observations or of actions that it planned."""

    def reset(self) -> None:
        """Forget the episode before; called where an episode begins."""
        ...


def begin_episode(policy: Policy) -> None:
    """Make a policy with a memory forget the episode before."""
    if isinstance(policy, EpisodicPolicy):
        policy.reset()


class SavedPolicy(Policy, Protocol):
    """A policy from a file, with the specs that it was trained for."""

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse to run where an observation or an action means something else.

        Raises:
            SpecMismatch: with every difference.
        """
        ...


_LOADERS = PluginTable(
    "kind of policy",
    "rlenv_robot.policies",
    {
        "npz": "rlenv_robot.policies.policy:load_searched",
        "onnx": "rlenv_robot.policies.onnx:OnnxPolicy",
    },
)
"""Functions that load a policy, by the suffix of its file without the dot, or ``folder``."""
_FOLDER_PLUGIN = "rlenv_learn"
"""The plug-in of this repository that declares ``folder``; for the message where it is not installed."""


def load_policy(path: str | Path) -> SavedPolicy:
    """Load a policy: ``.onnx`` from any trainer, ``.npz`` from `rlenv-robot train`, or a folder that LeRobot saved.

    An installed package declares what loads other files in the entry-point group ``rlenv_robot.policies``, as
    ``suffix = "module:function"``: a function of the path that returns a `SavedPolicy`.

    Raises:
        RobotError: the file is missing or no policy, its suffix is another, or LeRobot or the plug-in that runs its
            policies is not installed.
        ValueError: the package that loads such files can't be imported.
    """
    suffix = Path(path).suffix.removeprefix(".")
    if suffix in _LOADERS:
        kind = suffix
    elif Path(path).is_dir():
        kind = "folder"
        if kind not in _LOADERS:
            raise RobotError(
                f"{path}: folders that LeRobot saved are loaded by the plug-in {_FOLDER_PLUGIN}, which is not "
                "installed here"
            )
    else:
        known = ", ".join(f".{name}" for name in _LOADERS.names() if name != "folder")
        raise RobotError(f"{path}: a policy is a file that ends in {known}, or a folder that LeRobot saved")
    return cast("Callable[[str | Path], SavedPolicy]", _LOADERS.load(kind))(path)


def load_searched(path: str | Path) -> SearchedPolicy:
    """Load a policy that `rlenv-robot train` wrote as ``.npz``: a network, or a feedback policy.

    Raises:
        RobotError: the file is missing, damaged, or holds something else.
    """
    from rlenv_robot.policies.feedback import FeedbackPolicy, load_arrays
    from rlenv_robot.policies.network import NetworkPolicy

    kind = load_arrays(path)[0].get("kind")
    return NetworkPolicy.load(path) if kind == "network" else FeedbackPolicy.load(path)


# -- Policies without observations: to see a model move, and to record exploration ----------------------


class ZeroPolicy:
    """A policy that chooses zero, or the legal action nearest to it.

    Args:
        seed: unused, since nothing is drawn.
    """

    def __init__(self, seed: int = 0) -> None:
        self._action = Spec("unknown")

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept any specs."""
        self._action = action

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action by the names of the action spec, for one observation."""
        return {field.name: field.nothing.copy() for field in self._action}


class RandomPolicy:
    """A policy that draws uniformly from the range of each action, anew in every step.

    Args:
        seed: of the draws.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng, self._action = np.random.default_rng(seed), Spec("unknown")

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse actions whose range has no end.

        Raises:
            SpecMismatch: with each of them.
        """
        endless = [
            field.name
            for field in action
            if not field.is_text and not np.isfinite([*np.ravel(field.low), *np.ravel(field.high)]).all()
        ]
        if endless:
            raise SpecMismatch(
                "random actions need a range",
                [f"action {name!r} has none; a MuJoCo model gives it as ctrlrange" for name in endless],
            )
        self._action = action

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action by the names of the action spec, for one observation."""
        return self._action.sample(self._rng)

    @property
    def behaviour(self) -> Spec:
        """No parameters: the distribution is that of the ranges, the same in every step."""
        return Spec("behaviour")

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        """Return an action with the logarithm of its density: NaN where it has texts or entries that are counted."""
        return Draw(self.act(observation), self._log_density)

    @cached_property
    def _log_density(self) -> float:
        total = 0.0
        for field in self._action:
            if field.is_text or field.counted_by:
                return math.nan
            low, high = (bound.astype(np.float64) for bound in field.bounds)
            span = high - low + (field.numpy_dtype.kind != "f")
            total -= float(np.log(span[span > 0]).sum())  # an element with one value alone has probability 1
        return total


PLAIN: Mapping[str, Callable[[int], SavedPolicy]] = {"zero": ZeroPolicy, "random": RandomPolicy}
"""The policies that `rlenv-robot run --policy` takes in place of a file; each is made from a seed."""
