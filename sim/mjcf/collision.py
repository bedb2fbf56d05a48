"""The distances of a robot's parts from each other and from boxes, by the geometry of its MuJoCo model."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from hal.errors import SpecError
from sim.model import SimModel

__all__ = ["Box", "ModelCheck"]

_log = logging.getLogger(__name__)

_LONGEST_PIECE = 1.5
"""Longest piece of a part for its distance to boxes, as a multiple of its thickness: a longer part is cut in pieces."""

Box = Sequence[float]
"""Lowest x, y, z and highest x, y, z in the world frame of the model, metres."""


class ModelCheck:
    """Know how near a robot's parts are to each other and to boxes; a `hal.guarding.motion_check.MotionCheck`.

    The parts are the geoms of the robot's bodies that can collide (``contype`` or ``conaffinity``); a robot's bodies
    are those that its commands move, and their ancestors. Two parts of one body, or of a body and its parent, are
    never compared. Two parts that are too near at the robot's home are not compared either, which is logged once.

    Distances of parts are those of `mj_geomDistance`. For boxes a part is cut into pieces along its longest side, and
    each piece stands for the box around it: never farther away than it is.

    Args:
        sim_model: of the robot.
        self_collision: whether parts are compared with each other.
        clearance_m: distance that they keep, and that they keep from boxes, metres, above 0.
        keep_out: boxes that no moving part may enter.
        keep_in: boxes that every moving part must stay in, all of them.

    Raises:
        SpecError: no command of the robot is a pose, a box is none, or the clearance is not above 0.
    """

    def __init__(
        self,
        sim_model: SimModel,
        *,
        self_collision: bool = True,
        clearance_m: float = 0.005,
        keep_out: Sequence[Box] = (),
        keep_in: Sequence[Box] = (),
    ) -> None:
        if not 0 < clearance_m < math.inf:
            raise SpecError(f"clearance_m is {clearance_m!r}, it must be a number above 0")
        self._model, self._clearance_m = sim_model.model, clearance_m
        self._data = mujoco.MjData(self._model)
        if sim_model.keyframe >= 0:
            mujoco.mj_resetDataKeyframe(self._model, self._data, sim_model.keyframe)
        self._columns = {
            name: np.arange(self._model.nq)[columns if isinstance(columns, slice) else list(columns)]
            for name, columns in sim_model.start.items()
        }
        if not self._columns:
            raise SpecError(f"robot {sim_model.spec.name!r}: no command is a pose, so no motion of it can be checked")
        moved = self._moved_bodies()
        bodies = moved | {ancestor for body in moved for ancestor in self._ancestors(body)}
        geoms = self._geoms(bodies)
        self._levers = {name: self._lever_arms(columns, geoms) for name, columns in self._columns.items()}
        self._out, self._in = (_boxes(boxes, key) for key, boxes in (("keep_out", keep_out), ("keep_in", keep_in)))
        self._pieces = _Pieces(self._model, [geom for geom in geoms if int(self._model.geom_bodyid[geom]) in moved])
        self._first, self._second = np.zeros(0, np.intp), np.zeros(0, np.intp)
        if self_collision:
            self._compare(geoms, sim_model.spec.home)

    # -- what is compared ----------------------------------------------------------------------------------

    def _ancestors(self, body: int) -> list[int]:
        """Return the parents of a body, the nearest first, without the world."""
        found, parent = [], int(self._model.body_parentid[body])
        while parent:
            found.append(parent)
            parent = int(self._model.body_parentid[parent])
        return found

    def _moved_bodies(self) -> set[int]:
        """Return the bodies that the commands move."""
        columns = {int(column) for each in self._columns.values() for column in each}
        joints = [joint for joint in range(self._model.njnt) if int(self._model.jnt_qposadr[joint]) in columns]
        roots = {int(self._model.jnt_bodyid[joint]) for joint in joints}
        return {body for body in range(1, self._model.nbody) if roots & {body, *self._ancestors(body)}}

    def _geoms(self, bodies: set[int]) -> list[int]:
        model = self._model
        return [
            geom
            for geom in range(model.ngeom)
            if int(model.geom_bodyid[geom]) in bodies and (model.geom_contype[geom] or model.geom_conaffinity[geom])
        ]

    def _lever_arms(self, columns: np.ndarray, geoms: Sequence[int]) -> np.ndarray:
        """Return how far a part can move at most with one unit of each column: its distance from the joint's axis."""
        model, arms = self._model, np.zeros(len(columns))
        for index, column in enumerate(columns.tolist()):
            (joint,) = np.flatnonzero(model.jnt_qposadr == column)
            body = int(model.jnt_bodyid[joint])
            if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
                arms[index] = 1.0
                continue
            for geom in geoms:
                chain, at = 0.0, int(model.geom_bodyid[geom])
                if at != body and body not in self._ancestors(at):
                    continue
                while at != body:
                    chain, at = chain + float(np.linalg.norm(model.body_pos[at])), int(model.body_parentid[at])
                    chain += self._slide_m(at) if at != body else 0.0
                near = float(np.linalg.norm(model.jnt_pos[joint]) + np.linalg.norm(model.geom_pos[geom]))
                arms[index] = max(arms[index], chain + near + float(model.geom_rbound[geom]))
        return arms

    def _slide_m(self, body: int) -> float:
        """Return how far the slides of a body can lead it away."""
        model, first, count = self._model, int(self._model.body_jntadr[body]), int(self._model.body_jntnum[body])
        slides = [each for each in range(first, first + count) if model.jnt_type[each] == mujoco.mjtJoint.mjJNT_SLIDE]
        return sum(float(np.abs(model.jnt_range[each]).max()) for each in slides)

    def _compare(self, geoms: Sequence[int], home: Mapping[str, object]) -> None:
        """Choose the pairs of parts: not of neighbours, and not those that are too near at home."""
        model = self._model
        weld = model.body_weldid
        parents = {int(weld[body]): int(weld[model.body_parentid[body]]) for body in range(1, model.nbody)}
        pairs = []
        for index, first in enumerate(geoms):
            for second in geoms[index + 1 :]:
                one, other = (int(weld[model.geom_bodyid[geom]]) for geom in (first, second))
                if one != other and parents.get(one) != other and parents.get(other) != one:
                    pairs.append((first, second))
        self._first, self._second = (np.array([pair[side] for pair in pairs], np.intp) for side in (0, 1))
        self._place({name: np.asarray(value, np.float64) for name, value in home.items()})
        near = self._pair_clearances_m() < 0.0
        if near.any():
            names = ", ".join(self._pair(number) for number in np.flatnonzero(near).tolist())
            _log.warning("these parts are too near to each other at home, and are not compared: %s", names)
        self._first, self._second = self._first[~near], self._second[~near]

    # -- as MotionCheck ------------------------------------------------------------------------------------

    @property
    def resolution_m(self) -> float:
        """The clearance: two parts that keep it at both ends of a step do not touch in between."""
        return self._clearance_m

    def motion_m(self, begin: Mapping[str, np.ndarray], end: Mapping[str, np.ndarray]) -> float:
        """Return the sum over the joints of their way times the longest lever arm, as `MotionCheck.motion_m`."""
        return sum(float(np.abs(end[name] - begin[name]).ravel() @ arms) for name, arms in self._levers.items())

    def clearances_m(self, commands: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the clearances of the pairs of parts, then those of the boxes, as `MotionCheck.clearances_m`."""
        self._place(commands)
        parts = [self._pair_clearances_m()] if len(self._first) else []
        if len(self._out) or len(self._in):
            parts.append(self._pieces.clearances_m(self._data, self._out, self._in, self._clearance_m))
        return np.concatenate(parts) if parts else np.zeros(0)

    def describe(self, number: int) -> str:
        """Return the names of the two parts, or of the part and the box, as `MotionCheck.describe`."""
        if number < len(self._first):
            return self._pair(number)
        box, piece = divmod(number - len(self._first), len(self._pieces.geoms))
        part = self._name(self._pieces.geoms[piece])
        if box < len(self._out):
            return f"{part} and the box keep_out[{box}]"
        return f"{part} and the edge of the box keep_in[{box - len(self._out)}]"

    # ------------------------------------------------------------------------------------------------------

    def _place(self, commands: Mapping[str, np.ndarray]) -> None:
        qpos = self._data.qpos
        for name, columns in self._columns.items():
            if name in commands:
                qpos[columns] = np.asarray(commands[name]).ravel()
        mujoco.mj_kinematics(self._model, self._data)

    def _pair_clearances_m(self) -> np.ndarray:
        """Return exact clearances where two parts may be near, and of far ones what their spheres leave."""
        model, data, clearance_m = self._model, self._data, self._clearance_m
        first, second = self._first, self._second
        apart = data.geom_xpos[first] - data.geom_xpos[second]
        clearances: np.ndarray = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        clearances -= model.geom_rbound[first] + model.geom_rbound[second] + clearance_m
        for number in np.flatnonzero(clearances < clearance_m).tolist():
            distance = mujoco.mj_geomDistance(model, data, first[number], second[number], 4.0 * clearance_m, None)
            clearances[number] = distance - clearance_m
        return clearances

    def _pair(self, number: int) -> str:
        return f"{self._name(int(self._first[number]))} and {self._name(int(self._second[number]))}"

    def _name(self, geom: int) -> str:
        model = self._model
        body = model.body(model.geom_bodyid[geom]).name
        return model.geom(geom).name or f"geom {geom} of {body}"


class _Pieces:
    """The parts that boxes are compared with, each cut into boxes of its own.

    Args:
        model: of the robot.
        geoms: the parts.

    Attributes:
        geoms: the part of each piece.
    """

    def __init__(self, model: mujoco.MjModel, geoms: Sequence[int]) -> None:
        self.geoms: list[int] = []
        middles, halves = [], []
        for geom in geoms:
            middle, half = model.geom_aabb[geom][:3].copy(), model.geom_aabb[geom][3:].copy()
            axis = int(np.argmax(half))
            thickness = max(float(np.sort(half)[1]), 1e-3)
            count = max(1, math.ceil(half[axis] / (_LONGEST_PIECE * thickness)))
            for index in range(count):
                at, size = middle.copy(), half.copy()
                size[axis] = half[axis] / count
                at[axis] = middle[axis] - half[axis] + (2 * index + 1) * size[axis]
                self.geoms.append(geom)
                middles.append(at)
                halves.append(size)
        self._middles, self._halves = (np.array(each).reshape(-1, 3, 1) for each in (middles, halves))
        self._index = np.array(self.geoms, np.intp)

    def clearances_m(
        self, data: mujoco.MjData, outside: np.ndarray, inside: np.ndarray, clearance_m: float
    ) -> np.ndarray:
        """Return the clearance of each piece from each box, box by box: shape (boxes * pieces,).

        Args:
            data: with the poses of the geoms.
            outside, inside: middle and half size of each box, (n, 2, 3).
            clearance_m: distance that is kept.
        """
        turn = data.geom_xmat[self._index].reshape(-1, 3, 3)
        middle = data.geom_xpos[self._index] + (turn @ self._middles)[:, :, 0]
        half = (np.abs(turn) @ self._halves)[:, :, 0]
        found = []
        if len(outside):
            gaps = np.abs(middle - outside[:, None, 0]) - (outside[:, None, 1] + half)
            beyond = np.maximum(gaps, 0.0)
            found.append(np.sqrt(np.einsum("bpi,bpi->bp", beyond, beyond)) + np.minimum(gaps.max(2), 0.0))
        if len(inside):
            found.append((inside[:, None, 1] - half - np.abs(middle - inside[:, None, 0])).min(2))
        clearances: np.ndarray = np.concatenate(found).ravel() - clearance_m
        return clearances


def _boxes(boxes: Sequence[Box], key: str) -> np.ndarray:
    """Return middle and half size of each box, (n, 2, 3)."""
    for index, box in enumerate(boxes):
        numbers = np.asarray(box, np.float64)
        if numbers.shape != (6,) or not np.isfinite(numbers).all() or not (numbers[:3] < numbers[3:]).all():
            raise SpecError(
                f"{key}[{index}] is {list(box)}, it must be the lowest x, y, z and then the highest x, y, z, in metres"
            )
    low, high = np.asarray(boxes, np.float64).reshape(-1, 2, 3).transpose(1, 0, 2)
    return np.stack([(low + high) / 2, (high - low) / 2], 1)
