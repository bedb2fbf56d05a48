"""Write starter Kaiwu projects for this project's tasks, with the names of Kaiwu's documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.config.plugins import unknown_name
from rlenv_robot.registry import task as make_task

__all__ = ["ALGORITHMS", "write_project"]

ALGORITHMS = ("ppo", "dqn")
"""The algorithms with a starter project: PPO with continuous actions, and DQN with numbered moves."""

_PPO: Mapping[str, object] = {
    "capacity": 4096, "preload": 0.25, "sampler": "Fifo", "limiter": "MinSize", "per_insert": 1, "error_buffer": 1024,
    "batch": 960, "policy": "on-policy", "dump": 1, "test_capacity": 64, "test_batch": 4,
    "hidden": "[64, 64]", "gamma": 0.9, "epochs": 10, "minibatch": 120, "reward_scale": 1.0, "samples_per_learn": 960,
}  # fmt: skip
_PPO_OF: Mapping[str, Mapping[str, object]] = {
    "go2-walk": {
        "capacity": 16384, "preload": 0.25, "batch": 4096, "hidden": "[256, 128]", "gamma": 0.99, "epochs": 5,
        "minibatch": 512, "reward_scale": 0.05, "samples_per_learn": 4096,
    },
}  # fmt: skip
_DQN: Mapping[str, object] = {
    "capacity": 50_000, "preload": 0.02, "sampler": "Uniform", "limiter": "SampleToInsertRatio", "per_insert": 16,
    "error_buffer": 1024, "batch": 128, "policy": "off-policy", "dump": 200, "test_capacity": 64, "test_batch": 4,
    "hidden": "[128, 128]", "gamma": 0.9, "epsilon_steps": 8_000, "samples_per_learn": 8,
}  # fmt: skip
_MOST_MOVED = 5
"""Most elements of the action that a DQN's moves change: those of an arm of six joints except the gripper."""


def write_project(folder: str | Path, environment: str, algorithm: str = "ppo") -> list[Path]:
    """Write a starter project whose workflow runs without changes.

    Args:
        folder: the project's folder; created if missing. No existing file is replaced.
        environment: a task with a float action of finite range, such as ``so101-reach`` or ``go2-walk``.
        algorithm: ``ppo``, or ``dqn``, whose numbered moves change one element of the action at a time. For ``dqn`` the
            task must name the observation around which its actions move (`rlenv_robot.tasks.flat_hints.FlatHints`).

    Returns:
        The written files, sorted.

    Raises:
        ValueError: the algorithm is unknown, or can't act in the task.
        FileExistsError: one of the files exists; nothing was written.
    """
    if algorithm not in ALGORITHMS:
        raise unknown_name(algorithm, "algorithm", ALGORITHMS)
    folder = Path(folder)
    values = _values(environment, algorithm)
    root = resources.files("rlenv_kaiwu").joinpath("templates")
    files: dict[Path, str] = {}
    for part in ("common", algorithm):
        for place, source in _below(root.joinpath(part), ""):
            files[folder / _filled(place.removesuffix(".txt"), values)] = _filled(
                source.read_text(encoding="utf-8"), values
            )
    for path in files:
        if path.exists():
            raise FileExistsError(f"{path} is there already and was kept; choose another folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(files)


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        place = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _below(entry, f"{place}/")
        elif entry.name.endswith(".txt"):
            yield place, entry


def _filled(text: str, values: Mapping[str, object]) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _values(environment: str, algorithm: str) -> dict[str, object]:
    task = make_task(environment)
    flat = flat_for(task)
    if len(flat.action) != 1:
        raise ValueError(f"{environment} has {len(flat.action)} action fields; a written project acts in one")
    action, settings = flat.action.fields[0], dict(_PPO) | dict(_PPO_OF.get(environment, {}))
    around = dict(flat.held).get(action.name, "")
    if algorithm == "dqn":
        settings = dict(_DQN)
        if not around:
            raise ValueError(f"{environment} does not say around which observation its actions move, as dqn needs")
    low, high = (np.ravel(bound).round(6).tolist() for bound in action.bounds)
    return {
        **settings, "environment": environment, "algorithm": algorithm, "code": environment.replace("-", "_"),
        "fields": _fields(flat), "differences": [(gap.minuend, gap.subtrahend, gap.scale) for gap in flat.differences],
        "action_field": action.name, "around": around, "stride": flat.stride or 1.0,
        "observation_size": flat.size, "action_size": flat.action_size, "low": low, "high": high,
        "moved": list(range(min(action.size, _MOST_MOVED))), "steps": [-flat.stride, flat.stride],
    }  # fmt: skip


def _fields(flat: FlattenObservation) -> dict[str, float]:
    """Return observation field -> the size that becomes 1."""
    fields, start = {}, 0
    for part in flat.observation:
        fields[part.name] = round(float(flat.scale[start : start + part.size].mean()), 6)
        start += part.size
    return fields
