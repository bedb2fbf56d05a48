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
from hal.errors import missing_plugin, wrong_type
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
    """An object that chooses actions."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action, field -> array, for observations with any leading axes."""
        ...


class Draw(NamedTuple):
    """A drawn action, and its distribution.

    Attributes:
        action: by the names of the action spec.
        log_probability: logarithm of the action's density, or of its probability where actions are discrete.
        behaviour: parameters of the distribution by the names of the policy's ``behaviour``; empty where it has none.
    """

    action: dict[str, np.ndarray]
    log_probability: float
    behaviour: Mapping[str, np.ndarray] = MappingProxyType({})


@runtime_checkable
class StochasticPolicy(Policy, Protocol):
    """A policy that draws its actions and returns their distribution; `run_episode` records both."""

    @property
    def behaviour(self) -> Spec:
        """The spec of the distribution's parameters, such as mean and standard deviation or logits; empty for none."""
        ...

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        """Draw an action for one observation."""
        ...


@runtime_checkable
class EpisodicPolicy(Policy, Protocol):
    """A policy with a state, such as stored observations or planned actions."""

    def reset(self) -> None:
        """Discard the state; called at the beginning of an episode."""
        ...


def begin_episode(policy: Policy) -> None:
    """Reset a policy that has a state."""
    if isinstance(policy, EpisodicPolicy):
        policy.reset()


class SavedPolicy(Policy, Protocol):
    """A policy from a file that includes its specs."""

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that differ from the policy's.

        Raises:
            SpecMismatch: the specs differ; the error lists every difference.
        """
        ...


_LOADERS = PluginTable(
    "kind of policy",
    "rlenv_robot.policies",
    {
        "npz": "rlenv_robot.policies.policy:load_searched",
    },
)
"""Functions that load a policy, by the suffix of its file without the dot, or ``folder`` for folders."""
SCRIPT = "script:"
"""Beginning of the name of a task's script where a policy's file is expected."""
_SCRIPTED = PluginTable(
    "named policy", "rlenv_robot.named_policies", {"script": "rlenv_robot.policies.scripts:ScriptedPolicy"}
)

_SEARCHED = PluginTable("kind of searched policy", "rlenv_robot.searched_policies", {})
"""Functions that load further kinds of ``.npz``, by the ``kind`` of the file's header."""
_PLUGIN = "rlenv_learn"
_IN_PLUGIN = {
    "folder": (_PLUGIN, "folders that LeRobot saved"),
    "onnx": (_PLUGIN, "ONNX files"),
    "toml": ("rlenv_policy_servers", "files of policy servers"),
}
"""The kinds of our plug-ins: the package and its files, for the message where it is not installed."""


def load_policy(path: str | Path) -> SavedPolicy:
    """Load a policy: ``.onnx`` from any trainer, ``.npz`` from `rlenv-robot train`, or a folder that LeRobot saved.

    A name such as ``zoo:so101-reach`` loads a policy that ships with a package (`rlenv_robot.policies.zoo`), and
    ``script:so101-stack`` the script of a task (`rlenv_robot.policies.scripts`). A file
    ``.toml`` of the plug-in `policy_servers` gives a `rlenv_robot.policies.chunks.ChunkPredictor`.

    Packages declare functions for other files in the entry-point group ``rlenv_robot.policies``, as
    ``suffix = "module:function"``. Such a function takes the path and returns a `SavedPolicy`.

    Raises:
        RobotError: the file is missing or not a policy, its suffix is unknown, or the plug-in or the library for such
            files is not installed.
        ValueError: the package that loads such files can't be imported, or no package brings a policy of the name.
        TypeError: this is no path.
    """
    from rlenv_robot.policies.zoo import policy_file, zoo_names

    if not isinstance(path, str | Path):
        raise wrong_type("path", path, "the path of a policy such as 'policy.npz'")
    if "://" in str(path):
        raise RobotError(f"{path} is an address; download the policy and give the path of its file or folder")
    if str(path).startswith(SCRIPT):
        make = cast("Callable[[str], SavedPolicy]", _SCRIPTED.load("script"))
        return make(str(path).removeprefix(SCRIPT))
    name, path = str(path), policy_file(path)
    suffix = Path(path).suffix.removeprefix(".")
    kind = "folder" if suffix not in _LOADERS and Path(path).is_dir() else suffix
    if kind not in _LOADERS:
        if kind in _IN_PLUGIN:
            package, files = _IN_PLUGIN[kind]
            raise RobotError(f"{path}: {files} are loaded by {missing_plugin(package)}")
        suffixes = ", ".join(f".{name}" for name in _LOADERS.names() if name != "folder")
        hint = f"; did you mean zoo:{name}?" if name in zoo_names() else ""
        raise RobotError(f"{path}: a policy is a file that ends in {suffixes}, or a folder that LeRobot saved{hint}")
    return cast("Callable[[str | Path], SavedPolicy]", _LOADERS.load(kind))(path)


def load_searched(path: str | Path) -> SearchedPolicy:
    """Load a network or a feedback policy that `rlenv-robot train` wrote as ``.npz``.

    Raises:
        RobotError: the file is missing, damaged, or another file, or the plug-in for networks is not installed.
    """
    from rlenv_robot.policies.feedback import FeedbackPolicy, load_arrays

    kind = str(load_arrays(path)[0].get("kind"))
    if kind in _SEARCHED:
        return cast("Callable[[str | Path], SearchedPolicy]", _SEARCHED.load(kind))(path)
    if kind == "network":
        raise RobotError(f"{path}: networks are loaded by {missing_plugin(_PLUGIN)}")
    return FeedbackPolicy.load(path)


# -- Policies without observations, to see a model move and to record exploration ------------------------


class ZeroPolicy:
    """A policy that always chooses 0, or the legal action nearest to 0.

    Args:
        seed: unused.
    """

    def __init__(self, seed: int = 0) -> None:
        self._action = Spec("unknown")

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept any specs."""
        self._action = action

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an action for one observation, field -> array."""
        return {field.name: field.nothing.copy() for field in self._action}


class RandomPolicy:
    """A policy that draws each action uniformly from its range, independently in every step.

    Args:
        seed: the seed of the draws.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng, self._action = np.random.default_rng(seed), Spec("unknown")

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse actions with an infinite range.

        Raises:
            SpecMismatch: an action has an infinite range; the error lists all of them.
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
        """Return an action for one observation, field -> array."""
        return self._action.sample(self._rng)

    @property
    def behaviour(self) -> Spec:
        """An empty spec, since the distribution has no parameters."""
        return Spec("behaviour")

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        """Return an action with the logarithm of its density; NaN if it has texts or counted entries."""
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
"""Policies that `rlenv-robot run --policy` takes in place of a file, by name; each is made from a seed."""
