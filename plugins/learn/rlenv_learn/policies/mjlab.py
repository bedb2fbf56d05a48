"""Run policies that mjlab exported: the ONNX file's metadata are the manifest, compared before anything moves.

mjlab 1.6.0 (`mjlab/rl/exporter_utils.py`) writes joints by name, gains, default pose, scales, clips and history of the
observations into ``metadata_props``, as text with commas, and semicolons within an element. It leaves out the control
rate and the robot, so a small TOML file beside it names them::

    file = "walk.onnx"
    robot = "go2"
    rate_hz = 50.0
    command = [0.5, 0.0, 0.0]   # m/s ahead, m/s to the left, rad/s to the left
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError, RobotSpec, Spec, SpecMismatch
from hal.robot import Actuation, Range, elements_of
from rlenv_learn.policies.onnx import open_session
from rlenv_robot.policies.budget import read_within
from rlenv_robot.robot_models import find_robot_model

__all__ = ["TERMS", "MjlabManifest", "MjlabPolicy", "ObservationTerm", "load_mjlab"]

_Observation = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ObservationTerm:
    """One term of the observation vector: clipped, then scaled, then remembered, as mjlab's ObservationManager does.

    Attributes:
        name: a name of `TERMS`.
        scale: factor of all numbers, or of each.
        clip: least and largest number before scaling.
        history: number of observations in the vector, oldest first; 0 is the newest alone.
    """

    name: str
    scale: np.ndarray
    clip: tuple[float, float]
    history: int


@dataclass(frozen=True)
class MjlabManifest:
    """The metadata of an exported policy.

    Attributes:
        joints: joint names in the order of the policy's vectors, without ``_joint`` at their ends.
        stiffness: kp of each joint, N m/rad.
        damping: kd of each joint, N m s/rad.
        default_pose: angle of each joint to which positions are relative, rad.
        action_scale: rad for an action of 1, for each joint.
        terms: the observation's terms in order.
    """

    joints: tuple[str, ...]
    stiffness: np.ndarray
    damping: np.ndarray
    default_pose: np.ndarray
    action_scale: np.ndarray
    terms: tuple[ObservationTerm, ...]

    @staticmethod
    def from_metadata(entries: Mapping[str, str]) -> MjlabManifest:
        """Read ``metadata_props``.

        Raises:
            RobotError: an entry is missing or can't be read, lengths differ, or a term is none of `TERMS`.
        """
        try:
            joints = tuple(name.removesuffix("_joint") for name in entries["joint_names"].split(","))
            count = len(joints)
            return MjlabManifest(
                joints,
                _numbers(entries, "joint_stiffness", count),
                _numbers(entries, "joint_damping", count),
                _numbers(entries, "default_joint_pos", count),
                _numbers(entries, "action_scale", count),
                _terms(entries),
            )
        except KeyError as error:
            raise RobotError(
                f"the metadata have no {error.args[0]!r}: this is not a policy exported by mjlab 1.6 or newer"
            ) from None

    def robot(self, nominal: RobotSpec, rate_hz: float) -> RobotSpec:
        """Return the robot of the training in the order of our joints, for the comparison of manifests.

        Args:
            nominal: our description of such a robot; its command is ``joint_target``.
            rate_hz: control periods a second of the training.

        Raises:
            RobotError: the robot has other joints; the message names them.
        """
        if nominal.commands.names != ("joint_target",):
            raise RobotError(f"the robot {nominal.name!r} takes {', '.join(nominal.commands.names)}, not joint_target")
        joints = nominal.commands["joint_target"].elements
        missing = [joint for joint in joints if joint not in self.joints]
        unknown = [joint for joint in self.joints if joint not in joints]
        if missing or unknown:
            raise RobotError(
                f"the policy has other joints than the robot {nominal.name!r}: missing {', '.join(missing) or 'none'}; "
                f"unknown {', '.join(unknown) or 'none'}"
            )
        order = self.order(joints)
        gains = {
            element: {"stiffness": Range.of(float(self.stiffness[at])), "damping": Range.of(float(self.damping[at]))}
            for element, at in zip(elements_of(nominal.commands), order, strict=True)
        }
        home = {"joint_target": tuple(float(angle) for angle in self.default_pose[order])}
        return replace(nominal, home=home, rate_hz=rate_hz, actuation=Actuation(gains))

    def order(self, joints: tuple[str, ...]) -> list[int]:
        """Return the place of each of these joints in the policy's vectors."""
        return [self.joints.index(joint) for joint in joints]


def _numbers(entries: Mapping[str, str], key: str, count: int) -> np.ndarray:
    """Return one number for each joint; a single number counts for all."""
    numbers = np.array([_number(key, text) for text in entries[key].split(",")], np.float32)
    if len(numbers) not in (1, count):
        raise RobotError(f"{key} has {len(numbers)} numbers, expected {count}, one for each joint")
    return np.broadcast_to(numbers, (count,)).copy()


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RobotError(f"{key} has {text!r:.40}, expected a number") from None


def _terms(entries: Mapping[str, str]) -> tuple[ObservationTerm, ...]:
    names = entries["observation_names"].split(",")
    unknown = [name for name in names if name not in TERMS]
    if unknown:
        raise RobotError(
            f"the policy observes {', '.join(unknown)}, which this robot does not measure; known are "
            f"{', '.join(TERMS)}; train it without these, which its critic may still observe"
        )
    columns = {}
    for key in ("scale", "clip", "history_length", "flatten_history_dim"):
        columns[key] = entries[f"observation_terms_{key}"].split(",")
        if len(columns[key]) != len(names):
            raise RobotError(f"observation_terms_{key} has {len(columns[key])} entries, expected {len(names)}")
    terms = []
    for at, name in enumerate(names):
        scale = np.array([_number("observation_terms_scale", part) for part in columns["scale"][at].split(";")])
        clip = [_number("observation_terms_clip", part) for part in columns["clip"][at].split(";")]
        history = int(_number("observation_terms_history_length", columns["history_length"][at]))
        if history and not _truth(columns["flatten_history_dim"][at]):
            raise RobotError(f"the history of {name} is not flattened; export it with flatten_history_dim=True")
        if len(clip) != 2:
            raise RobotError(f"observation_terms_clip of {name} is {columns['clip'][at]!r}, expected two numbers")
        terms.append(ObservationTerm(name, scale.astype(np.float32), (clip[0], clip[1]), history))
    return tuple(terms)


def _truth(text: str) -> bool:
    return text == "True" or (text != "False" and bool(_number("observation_terms_flatten_history_dim", text)))


# -- The policy ----------------------------------------------------------------------------------------------


class MjlabPolicy:
    """An exported policy that takes our sensors and gives goal angles, one observation at a time.

    It is for tasks whose observation is the robot's sensors and whose action is its command, such as
    `rlenv_robot.tasks.free.Free`. Angles and actions are mapped by joint name.

    Args:
        path: the ONNX file.
        robot: name of the robot's model, such as ``go2``.
        rate_hz: control periods a second of the training (``1 / (decimation * timestep)``).
        command: velocity ahead and to the left, m/s, and turning rate to the left, rad/s; `command` may be changed
            between steps.

    Attributes:
        manifest: the file's metadata.
        robot: the robot of the training; `rlenv_robot.policies.deployment.check_deployment` compares it.
        command: the present command, (3,).

    Raises:
        RobotError: the file is not such a policy, its vector has another length than its metadata say, or onnxruntime
            is missing.
        ValueError: the robot model is unknown.
    """

    def __init__(
        self, path: str | Path, robot: str, rate_hz: float, command: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ) -> None:
        self._session = open_session(Path(path))
        self.manifest = MjlabManifest.from_metadata(self._session.get_modelmeta().custom_metadata_map)
        self.robot = self.manifest.robot(find_robot_model(robot).load_spec(), rate_hz)
        self.command = np.array(command, np.float32)
        self._joints = self.robot.commands["joint_target"].elements
        self._to_policy = [self._joints.index(joint) for joint in self.manifest.joints]
        self._to_robot = self.manifest.order(self._joints)
        self._bounds = self.robot.commands["joint_target"].bounds
        self._history: dict[str, deque[np.ndarray]] = {}
        self.reset()
        self._try_graph()

    def reset(self) -> None:
        """Forget the last action and the history."""
        self._last = np.zeros(len(self._joints), np.float32)
        self._history = {}

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs without the sensors that the policy needs, or with other joints.

        Raises:
            SpecMismatch: the error lists every difference.
        """
        needed = dict.fromkeys(sensor for term in self.manifest.terms for sensor in TERMS[term.name][0])
        problems = [f"observation has no {sensor}" for sensor in needed if sensor not in observation]
        expected = self.robot.commands["joint_target"]
        if action.names != ("joint_target",) or action["joint_target"].elements != expected.elements:
            problems.append(f"action is {', '.join(action.names)}, expected joint_target of {', '.join(self._joints)}")
        if problems:
            raise SpecMismatch("this policy takes the sensors of the robot and gives its command", problems)

    def act(self, observation: _Observation) -> dict[str, np.ndarray]:
        """Return the goal angles for one observation, within the joints' ranges."""
        output = self._run(self._vector(observation))
        self._last = output.copy()
        goal = self.manifest.default_pose + self.manifest.action_scale * output
        return {"joint_target": np.clip(goal[self._to_robot], *self._bounds).astype(np.float32)}

    def _vector(self, observation: _Observation) -> np.ndarray:
        parts = []
        for term in self.manifest.terms:
            value = np.clip(TERMS[term.name][1](self, observation), *term.clip).astype(np.float32) * term.scale
            if term.history:
                past = self._history.setdefault(term.name, deque([value] * term.history, term.history))
                past.append(value)
                value = np.concatenate(past)
            parts.append(value.astype(np.float32))
        return np.concatenate(parts)

    def _run(self, vector: np.ndarray) -> np.ndarray:
        output: np.ndarray = self._session.run(None, {self._session.get_inputs()[0].name: vector[None]})[0]
        if output.shape != (1, len(self._joints)) or not np.isfinite(output).all():
            raise RobotError(f"the policy gave {output!r:.200}, expected {len(self._joints)} finite numbers")
        return output[0].astype(np.float32)

    def _try_graph(self) -> None:
        """Run once at rest, so that a wrong length is found before anything moves."""
        zeros = {field.name: np.zeros(field.shape, np.float32) for field in self.robot.sensors}
        vector = self._vector(zeros)
        inputs = self._session.get_inputs()
        size = inputs[0].shape[-1]
        if len(inputs) != 1 or (isinstance(size, int) and size != len(vector)):
            shapes = ", ".join(f"{part.name} {part.shape}" for part in inputs)
            terms = ", ".join(term.name for term in self.manifest.terms)
            raise RobotError(f"the graph takes {shapes}, its metadata describe {len(vector)} numbers: {terms}")
        self._run(vector)
        self.reset()

    # -- the terms -------------------------------------------------------------------------------------------

    def _gravity(self, observation: _Observation) -> np.ndarray:
        w, x, y, z = observation["orientation"]
        return np.array((2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1))

    def _positions(self, observation: _Observation) -> np.ndarray:
        return observation["joint_position"][self._to_policy] - self.manifest.default_pose

    def _velocities(self, observation: _Observation) -> np.ndarray:
        return observation["joint_velocity"][self._to_policy]

    def _last_action(self, observation: _Observation) -> np.ndarray:
        return self._last

    def _command(self, observation: _Observation) -> np.ndarray:
        return self.command


TERMS: Mapping[str, tuple[tuple[str, ...], Callable[[MjlabPolicy, _Observation], np.ndarray]]] = {
    "base_lin_vel": (("linear_velocity",), lambda policy, observation: observation["linear_velocity"]),
    "base_ang_vel": (("angular_velocity",), lambda policy, observation: observation["angular_velocity"]),
    "projected_gravity": (("orientation",), MjlabPolicy._gravity),
    "joint_pos": (("joint_position",), MjlabPolicy._positions),
    "joint_vel": (("joint_velocity",), MjlabPolicy._velocities),
    "actions": ((), MjlabPolicy._last_action),
    "command": ((), MjlabPolicy._command),
}
"""Name of a term in mjlab's velocity task -> the sensors that it needs, and its value."""


def load_mjlab(path: str | Path) -> MjlabPolicy:
    """Load the policy that a file ``NAME.mjlab`` describes (see the module).

    Raises:
        RobotError: a file is missing, a key is missing or unknown, or the policy can't be used.
    """
    path = Path(path)
    try:
        settings: dict[str, Any] = tomllib.loads(read_within(path).decode())
        missing = [key for key in ("file", "robot", "rate_hz") if key not in settings]
        unknown = [key for key in settings if key not in ("file", "robot", "rate_hz", "command")]
        if missing or unknown:
            raise RobotError(
                f"missing {', '.join(missing) or 'none'}; unknown {', '.join(unknown) or 'none'}; allowed are file, "
                "robot, rate_hz (which mjlab's file does not contain) and command"
            )
        rate_hz, command = float(settings["rate_hz"]), settings.get("command", [0.0, 0.0, 0.0])
        if not 0 < rate_hz <= 1000 or len(command) != 3:
            raise RobotError("rate_hz must be above 0 and at most 1000, and command have three numbers")
        ahead, left, turn = (float(number) for number in command)
        return MjlabPolicy(path.parent / settings["file"], str(settings["robot"]), rate_hz, (ahead, left, turn))
    except RobotError as error:
        raise RobotError(f"{path}: {error}") from error
    except FileNotFoundError as error:
        raise RobotError(f"{error.filename}: there is no such file") from error
    except (OSError, ValueError, TypeError) as error:
        raise RobotError(f"{path}: can't be read: {error}") from error
