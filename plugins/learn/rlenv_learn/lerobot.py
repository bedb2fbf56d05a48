"""Run a policy that LeRobot trained on exported data, with LeRobot's network and scaling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, RobotError, Spec, SpecError, SpecMismatch
from recorder.json_data import JsonDict
from rlenv_robot.policies.budget import HEADER_BYTES, budget_bytes, over_budget

__all__ = ["LeRobotPolicy"]

_STATES, _IMAGES, _ACTION = ("observation.state", "observation.environment_state"), "observation.images.", "action"
_CONFIG, _WEIGHTS, _DATA, _TRAINING = "config.json", "model.safetensors", "info.json", "train_config.json"


class LeRobotPolicy:
    """A policy of LeRobot over the fields of the task whose data it was trained on.

    LeRobot's vectors ``observation.state``, ``observation.environment_state`` (optional) and ``action`` have the fields
    that `rlenv_formats.lerobot.write.write_lerobot` wrote, in the units of the task's specs. An image
    ``observation.images.<camera>`` is the field ``<camera>_image``, unless the data set names another one. The fields
    are described in the data set's ``meta/info.json``, which is read from ``info.json`` in the policy's folder, or from
    the data set that ``train_config.json`` names.

    LeRobot's queue of actions, or its temporal ensembling, is the policy's state, which `reset` discards.

    Args:
        path: the folder, such as ``outputs/train/.../checkpoints/last/pretrained_model``.

    Raises:
        RobotError: LeRobot is not installed, a file is missing or damaged, or the data set is not an export of this
            project.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        folder = Path(path)
        missing = [name for name in (_CONFIG, _WEIGHTS) if not (folder / name).is_file()]
        if missing:
            raise RobotError(f"{path} is not a LeRobot policy: it has no {' and no '.join(missing)}")
        config = _read(folder / _CONFIG)
        features = _description(folder)
        self._vectors = {name: _spec(features, name, self.path) for name in _STATES if name in features}
        self.action = _spec(features, _ACTION, self.path)
        cameras = [name for name in config.get("input_features", {}) if name.startswith(_IMAGES)]
        seen = {name: _spec(features, name, self.path).fields[0] for name in cameras if _fields_in(features, name)}
        self._trained = (*(part for spec in self._vectors.values() for part in spec), *seen.values())
        self._images = {
            name: seen[name].name if name in seen else f"{name.removeprefix(_IMAGES)}_image" for name in cameras
        }
        size = (folder / _WEIGHTS).stat().st_size
        if size > budget_bytes():
            raise over_budget(path, f"its {_WEIGHTS}", size)
        _refuse_classes(folder)
        self._model, self._before, self._after = _load(folder, str(config.get("type")))
        self.reset()

    def check(self, observation: Spec, action: Spec) -> None:
        """Check that observation and action have the policy's specs, and that no camera is missing.

        Raises:
            SpecMismatch: the specs differ; the error lists every difference.
        """
        trained = {field.name: field for field in self._trained}
        compared = tuple(field for field in observation if field.name in trained or not field.is_image)
        ordered = [trained.pop(field.name) for field in compared if field.name in trained]
        problems = [
            f"observation: {line}"
            for line in Spec("fields", (*ordered, *trained.values())).difference(Spec("fields", compared))
        ]
        problems += [f"action: {line}" for line in self.action.difference(Spec(_ACTION, action.fields))]
        problems += [
            f"observation: there is no image {field!r} for {name}"
            for name, field in self._images.items()
            if field not in observation
        ]
        if problems:
            raise SpecMismatch(f"{self.path} was trained by LeRobot on other data", problems)

    def reset(self) -> None:
        """Discard the planned actions at the beginning of an episode."""
        self._model.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, clipped to its bounds, for observations with any leading axes."""
        import torch

        first = self._trained[0]
        leading = np.shape(observation[first.name])[: np.ndim(observation[first.name]) - len(first.shape)]
        batch: JsonDict = {}
        for name, spec in self._vectors.items():
            parts = [np.asarray(observation[field.name]).reshape((-1, field.size)) for field in spec]
            batch[name] = torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))
        for name, field_name in self._images.items():
            image = np.ascontiguousarray(observation[field_name])
            image = image.reshape((-1, *image.shape[len(leading) :]))
            batch[name] = torch.from_numpy(image).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            vector = self._after(self._model.select_action(self._before(batch))).numpy()
        return self._named(vector, leading)

    def _named(self, vector: np.ndarray, leading: tuple[int, ...]) -> dict[str, np.ndarray]:
        named, place = {}, 0
        for field in self.action:
            value = vector[:, place : place + field.size].reshape((*leading, *field.shape))
            named[field.name] = np.clip(value, *field.bounds).astype(field.numpy_dtype)
            place += field.size
        return named


def _read(path: Path) -> JsonDict:
    try:
        if path.stat().st_size > HEADER_BYTES:
            raise RobotError(f"{path}: has {path.stat().st_size} bytes, a description may have {HEADER_BYTES}")
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RobotError(f"{path}: can't be read as a description of LeRobot: {error}") from error


def _description(folder: Path) -> JsonDict:
    """Return the ``features`` of a policy's data set."""
    places = [folder / _DATA]
    if (folder / _TRAINING).is_file():
        root = _read(folder / _TRAINING).get("dataset", {}).get("root")
        places += [] if root is None else [Path(root) / "meta" / _DATA]
    for place in places:
        if place.is_file():
            return dict(_read(place).get("features", {}))
    raise RobotError(
        f"{folder}: the meaning of its numbers is unknown: copy meta/info.json of its training data into this folder "
        f"(looked for {', '.join(map(str, places))})"
    )


def _fields_in(features: JsonDict, name: str) -> list[JsonDict]:
    """Return the fields that an export of this project names in a feature; empty for other data sets."""
    return list(features.get(name, {}).get("fields") or ())


def _spec(features: JsonDict, name: str, path: str) -> Spec:
    """Return the fields of a vector, from the key ``fields`` of an export of this project."""
    fields = _fields_in(features, name)
    if not fields:
        raise RobotError(
            f"{path}: the feature {name} of its data set does not say which fields it holds; policies run here that "
            "were trained on data of 'rlenv-robot data export --to lerobot'"
        )
    try:
        return Spec(name, tuple(Field.from_dict(plain) for plain in fields))
    except (SpecError, TypeError) as error:
        raise RobotError(f"{path}: the fields of {name} can't be read: {error}") from error


def _refuse_classes(folder: Path) -> None:
    """Refuse a policy whose processors name Python classes, which LeRobot would import.

    LeRobot writes registered names for its own steps, and the class's path for a step that is not registered.

    Raises:
        RobotError: a step has no registered name, or a description can't be read.
    """
    for path in sorted(folder.glob("*.json")):
        steps = _read(path).get("steps")
        for step in steps if isinstance(steps, list) else ():
            if not isinstance(step, dict) or not isinstance(step.get("registry_name"), str):
                raise RobotError(
                    f"{path}: a step names the code {str(step)[:100]}, and files of a policy run no code here; allowed "
                    "are steps that LeRobot registers (registry_name)"
                )


def _load(folder: Path, kind: str) -> tuple[Any, Any, Any]:
    """Return LeRobot's policy, and its processors before and after it."""
    try:
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors
    except ImportError as error:
        raise RobotError(f"{folder} needs LeRobot: pip install lerobot ({error})") from error
    try:
        model = get_policy_class(kind).from_pretrained(str(folder))
        before, after = make_pre_post_processors(model.config, pretrained_path=str(folder))
    except Exception as error:  # LeRobot, draccus and safetensors have no class of errors in common
        raise RobotError(f"{folder}: LeRobot can't load this {kind} policy: {error}") from error
    return model, before, after
