"""Run a policy that LeRobot trained on exported data, with LeRobot's network and scaling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, RobotError, Spec, SpecError, SpecMismatch
from hal.drivers.calibration import load_calibration
from hal.robots.so101_units import JointUnits
from recorder.json_data import JsonDict
from rlenv_learn.policies.joint_units import JointMap, JointUnitsPolicy, is_so101
from rlenv_robot.policies.budget import HEADER_BYTES, budget_bytes, over_budget

__all__ = ["LeRobotPolicy", "load_lerobot"]

_STATES, _ACTION = ("observation.state", "observation.environment_state"), "action"
_IMAGE, _IMAGES = "observation.image", "observation.images."
_CONFIG, _WEIGHTS, _DATA, _TRAINING = "config.json", "model.safetensors", "info.json", "train_config.json"
_UNITS, _ABOUT = "rlenv_robot.json", "about.json"


class LeRobotPolicy:
    """A policy of LeRobot over the fields of the data set that it was trained on.

    LeRobot's vectors ``observation.state``, ``observation.environment_state`` (optional) and ``action`` have the fields
    that `rlenv_formats.lerobot.write.write_lerobot` wrote, in the units of the task's specs. Those of other data sets
    are one field each: ``state``, ``environment_state`` and ``target``, in the set's own units. An image
    ``observation.images.<camera>`` is the field ``<camera>_image``, unless the data set names another one, and
    ``observation.image`` is ``observation_image_image``, as in our reader of LeRobot's sets. The fields
    are described in the data set's ``meta/info.json``, which is read from ``info.json`` in the policy's folder, or from
    the data set that ``train_config.json`` names.

    LeRobot's queue of actions, or its temporal ensembling, is the policy's state, which `reset` discards.

    Args:
        path: the folder, such as ``outputs/train/.../checkpoints/last/pretrained_model``.

    Attributes:
        action: the spec of one action.
        vectors: LeRobot's name of a vector -> the spec of its fields.
        images: LeRobot's name of an image -> the name of its field.
        model: LeRobot's policy.
        before: LeRobot's processor of what the model takes.
        after: LeRobot's processor of what it answers.

    Raises:
        RobotError: LeRobot is not installed, or a file is missing or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        folder = Path(path)
        missing = [name for name in (_CONFIG, _WEIGHTS) if not (folder / name).is_file()]
        if missing:
            raise RobotError(f"{path} is not a LeRobot policy: it has no {' and no '.join(missing)}")
        config = _read(folder / _CONFIG)
        self.data_set, self.data_folder = _description(folder)
        self.about = _read(folder / _ABOUT) if (folder / _ABOUT).is_file() else {}
        features = dict(self.data_set.get("features", {}))
        self.vectors = {name: _spec(features, name, self.path) for name in _STATES if name in features}
        self.action = _spec(features, _ACTION, self.path)
        cameras = [name for name in config.get("input_features", {}) if _is_image(name)]
        seen = {name: _spec(features, name, self.path).fields[0] for name in cameras if name in features}
        self._trained = (*(part for spec in self.vectors.values() for part in spec), *seen.values())
        self.images = {name: seen[name].name if name in seen else _image_name(name) for name in cameras}
        size = (folder / _WEIGHTS).stat().st_size
        if size > budget_bytes():
            raise over_budget(path, f"its {_WEIGHTS}", size)
        _refuse_classes(folder)
        self.model, self.before, self.after = _load(folder, str(config.get("type")))
        self.reset()

    @property
    def observation(self) -> Spec:
        """The fields of one observation."""
        return Spec("observation", self._trained)

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
            for name, field in self.images.items()
            if field not in observation
        ]
        if problems:
            raise SpecMismatch(f"{self.path} was trained by LeRobot on other data", problems)

    def reset(self) -> None:
        """Discard the planned actions at the beginning of an episode."""
        self.model.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, clipped to its bounds, for observations with any leading axes."""
        import torch

        first = self._trained[0]
        leading = np.shape(observation[first.name])[: np.ndim(observation[first.name]) - len(first.shape)]
        batch: JsonDict = {}
        for name, spec in self.vectors.items():
            parts = [np.asarray(observation[field.name]).reshape((-1, field.size)) for field in spec]
            batch[name] = torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))
        for name, field_name in self.images.items():
            image = np.ascontiguousarray(observation[field_name])
            image = image.reshape((-1, *image.shape[len(leading) :]))
            batch[name] = torch.from_numpy(image).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            vector = self.after(self.model.select_action(self.before(batch))).numpy()
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


def _description(folder: Path) -> tuple[JsonDict, Path]:
    """Return the description of a policy's data set, and the folder in which it lies."""
    places = [folder / _DATA]
    if (folder / _TRAINING).is_file():
        root = _read(folder / _TRAINING).get("dataset", {}).get("root")
        places += [] if root is None else [Path(root) / "meta" / _DATA]
    for place in places:
        if place.is_file():
            return _read(place), place.parent
    raise RobotError(
        f"{folder}: the meaning of its numbers is unknown: copy meta/info.json of its training data into this folder "
        f"(looked for {', '.join(map(str, places))})"
    )


def _spec(features: JsonDict, name: str, path: str) -> Spec:
    """Return the fields of a feature: those that an export of this project names, else the feature as one field."""
    feature = features.get(name, {})
    try:
        if feature.get("fields"):
            return Spec(name, tuple(Field.from_dict(plain) for plain in feature["fields"]))
        return Spec(name, (_field(feature, name),))
    except (SpecError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise RobotError(f"{path}: the fields of {name} can't be read: {error!r}") from error


def _is_image(name: str) -> bool:
    return name == _IMAGE or name.startswith(_IMAGES)


def _image_name(name: str) -> str:
    """Return the name of an image's field, as `imitate` names it."""
    from rlenv_learn.imitation.set_windows import camera_field_name

    return camera_field_name(name.removeprefix(_IMAGES))


def _field(feature: JsonDict, name: str) -> Field:
    """Return the field of a feature of LeRobot's own, by the name that our reader of LeRobot's sets gives it."""
    shape = tuple(int(size) for size in feature["shape"])
    if _is_image(name):
        shape = shape if shape[-1] == 3 else (*shape[1:], shape[0])
        return Field(_image_name(name), shape, "uint8", 0, 255)
    names = feature.get("names")
    names = names.get("motors", next(iter(names.values()), None)) if isinstance(names, dict) else names
    elements = tuple(map(str, names)) if isinstance(names, list) and len(names) == shape[-1] else ()
    return Field("target" if name == _ACTION else name.removeprefix("observation."), shape, elements=elements)


def load_lerobot(path: str | Path) -> LeRobotPolicy | JointUnitsPolicy:
    """Load a policy of LeRobot; one that was trained on joints of an SO-101 in LeRobot's numbers drives ours too.

    The units are looked for in ``rlenv_robot.json`` beside the description of the data set, as `rlenv-robot data units`
    writes it.

    Raises:
        RobotError: as for `LeRobotPolicy`, or the units can't be read.
    """
    policy = LeRobotPolicy(path)
    about = policy.data_set
    if not is_so101(about.get("robot_type"), policy.observation, policy.action):
        return policy
    declaration = policy.data_folder / _UNITS
    rate = about.get("fps")
    return JointUnitsPolicy(
        policy,
        _joint_map(declaration) if declaration.is_file() else None,
        float(rate) if isinstance(rate, int | float) else None,
        str(path),
    )


def _joint_map(declaration: Path) -> JointMap:
    declared = _read(declaration)
    calibration = declared.get("calibration")
    try:
        joints = None if calibration is None else load_calibration(declaration.parent / Path(calibration).name).joints
        return JointMap.from_dict(JointUnits(str(declared.get("joint_units")), joints).to_dict())
    except (ValueError, TypeError, OSError) as error:
        raise RobotError(f"{declaration}: {error}") from error


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
