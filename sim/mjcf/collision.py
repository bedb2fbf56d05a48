"""Compute the distances of a robot's parts from each other and from boxes, by the geometry of its MuJoCo model."""

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

_FAR_M = 0.5
"""Distance of two parts beyond which it does not matter, metres. A larger one makes looks rarer and dearer."""

_FEW = 5
"""Distances of pieces that are computed one by one; more of them together."""

Box = Sequence[float]
"""Lowest x, y, z and highest x, y, z in the world frame of the model, metres."""


class ModelCheck:
    """Compute how near a robot's parts are to each other and to boxes; a `hal.guarding.motion_check.MotionCheck`.

    The parts are the geoms of the robot's bodies that can collide (``contype`` or ``conaffinity``). The robot's bodies
    are those that its commands move, and their ancestors. Two parts of one body, or of a body and its parent, are
    never compared. If the model's own physics lets parts of the robot collide with each other, only those pairs are
    compared, otherwise all, so that a robot with two sets of geoms, one for itself and one for its surroundings, is
    checked only once. Two parts that are too near at the robot's home are not compared either; this is logged once.

    Distances of parts are computed by `mj_geomDistance`. For boxes a part is cut into pieces along its longest side,
    and each piece is replaced by its bounding box, which never overestimates a distance.

    Args:
        sim_model: the robot's model.
        self_collision: whether parts are compared with each other.
        clearance_m: least distance between parts, and between parts and boxes, metres, above 0.
        keep_out: boxes that no moving part may enter.
        keep_in: boxes; every moving part must stay inside all of them.

    Raises:
        SpecError: no command of the robot is a pose, a box is invalid, or the clearance is not above 0.
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
        self._order = np.concatenate(list(self._columns.values()))
        moved = self._moved_bodies()
        bodies = moved | {ancestor for body in moved for ancestor in self._ancestors(body)}
        geoms = self._geoms(bodies)
        self._out, self._in = (_boxes(boxes, key) for key, boxes in (("keep_out", keep_out), ("keep_in", keep_in)))
        self._pieces = _Pieces(self._model, [geom for geom in geoms if int(self._model.geom_bodyid[geom]) in moved])
        self._pairs: list[tuple[int, int]] = []
        if self_collision:
            self._compare(geoms, sim_model.spec.home)
        self._levers_m = self._levers()

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

    def _levers(self) -> np.ndarray:
        """Return by how much each distance may shrink with one unit of each column, shape (columns, distances).

        A joint changes the distance of two parts if it moves one of them, and not both.
        """
        joints = [int(np.flatnonzero(self._model.jnt_qposadr == column)[0]) for column in self._order]
        boxes = len(self._out) + len(self._in)
        levers = np.zeros((len(joints), len(self._pairs) + boxes * len(self._pieces.geoms)))
        rbound = self._model.geom_rbound
        for row, joint in zip(levers, joints, strict=True):
            for number, pair in enumerate(self._pairs):
                arms = [self._lever_m(joint, geom, float(rbound[geom])) for geom in pair]
                row[number] = max(arms) if min(arms) == 0.0 else 0.0
            pieces = zip(self._pieces.geoms, self._pieces.reaches_m, strict=True)
            row[len(self._pairs) :] = [self._lever_m(joint, geom, reach_m) for geom, reach_m in pieces] * boxes
        return levers

    def _lever_m(self, joint: int, geom: int, reach_m: float) -> float:
        """Return how far a part can move with one unit of a joint: its longest distance from the axis; 0: not at all.

        Args:
            joint: turns or slides.
            geom: the part.
            reach_m: how far a point of the part is from its middle at most, metres.
        """
        model = self._model
        chain, at, body = 0.0, int(model.geom_bodyid[geom]), int(model.jnt_bodyid[joint])
        if at != body and body not in self._ancestors(at):
            return 0.0
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
            return 1.0
        while at != body:
            chain, at = chain + float(np.linalg.norm(model.body_pos[at])), int(model.body_parentid[at])
            chain += self._slide_m(at) if at != body else 0.0
        near = float(np.linalg.norm(model.jnt_pos[joint]) + np.linalg.norm(model.geom_pos[geom]))
        return chain + near + reach_m

    def _slide_m(self, body: int) -> float:
        """Return how far the slides of a body can lead it away."""
        model, first, count = self._model, int(self._model.body_jntadr[body]), int(self._model.body_jntnum[body])
        slides = [each for each in range(first, first + count) if model.jnt_type[each] == mujoco.mjtJoint.mjJNT_SLIDE]
        return sum(float(np.abs(model.jnt_range[each]).max()) for each in slides)

    def _compare(self, geoms: Sequence[int], home: Mapping[str, object]) -> None:
        """Choose the pairs of parts: those that can collide in the model, and are not too near at home."""
        model = self._model
        weld = model.body_weldid
        parents = {int(weld[body]): int(weld[model.body_parentid[body]]) for body in range(1, model.nbody)}
        pairs = []
        for index, first in enumerate(geoms):
            for second in geoms[index + 1 :]:
                one, other = (int(weld[model.geom_bodyid[geom]]) for geom in (first, second))
                if one != other and parents.get(one) != other and parents.get(other) != one:
                    pairs.append((first, second))
        pairs = [pair for pair in pairs if self._collide(*pair)] or pairs
        for name, value in home.items():
            if name in self._columns:
                self._data.qpos[self._columns[name]] = np.asarray(value).ravel()
        mujoco.mj_kinematics(self._model, self._data)
        near = [pair for pair in pairs if self._distance_m(*pair) < self._clearance_m]
        if near:
            names = ", ".join(self._names(pair) for pair in near)
            _log.warning("these parts are too near to each other at home, and are not compared: %s", names)
        self._pairs = [pair for pair in pairs if pair not in near]

    def _collide(self, first: int, second: int) -> bool:
        """Return whether the bits of two geoms let them collide in the model's own physics."""
        contype, conaffinity = self._model.geom_contype, self._model.geom_conaffinity
        return bool(contype[first] & conaffinity[second] or contype[second] & conaffinity[first])

    # -- as MotionCheck ------------------------------------------------------------------------------------

    @property
    def resolution_m(self) -> float:
        """The clearance, metres: two parts that keep it at both ends of a step do not touch in between."""
        return self._clearance_m

    @property
    def levers_m(self) -> np.ndarray:
        """The greatest distances of parts from the joints' axes, metres, as for `MotionCheck.levers_m`."""
        return self._levers_m

    def pose(self, commands: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the angles of the joints that the commands move, as for `MotionCheck.pose`."""
        if len(self._columns) == 1:
            (name,) = self._columns
            return np.array(commands[name], np.float64).ravel()
        return np.concatenate([np.asarray(commands[name], np.float64).ravel() for name in self._columns])

    def clearances_m(self, pose: np.ndarray, numbers: np.ndarray | None = None) -> np.ndarray:
        """Return the clearances of the pairs of parts, then those of the boxes, as for `MotionCheck.clearances_m`."""
        data, pairs = self._data, self._pairs
        data.qpos[self._order] = pose
        mujoco.mj_kinematics(self._model, data)
        chosen = range(self._levers_m.shape[1]) if numbers is None else numbers.tolist()
        distances = [self._distance_m(*pairs[number]) for number in chosen if number < len(pairs)]
        clearances = np.array(distances, np.float64)
        if len(distances) < len(chosen):
            beyond = np.array(chosen[len(distances) :], np.intp) - len(pairs)
            clearances = np.concatenate([clearances, self._pieces.distances_m(data, self._out, self._in, beyond)])
        clearances -= self._clearance_m
        return clearances

    def describe(self, number: int) -> str:
        """Return the names of the two parts, or of the part and the box, as for `MotionCheck.describe`."""
        if number < len(self._pairs):
            return self._names(self._pairs[number])
        box, piece = divmod(number - len(self._pairs), len(self._pieces.geoms))
        part = self._name(self._pieces.geoms[piece])
        if box < len(self._out):
            return f"{part} and the box keep_out[{box}]"
        return f"{part} and the edge of the box keep_in[{box - len(self._out)}]"

    # ------------------------------------------------------------------------------------------------------

    def _distance_m(self, first: int, second: int) -> float:
        """Return how far two parts are from each other, `_FAR_M` at most; negative where they penetrate."""
        return float(mujoco.mj_geomDistance(self._model, self._data, first, second, _FAR_M, None))

    def _names(self, pair: tuple[int, int]) -> str:
        return f"{self._name(pair[0])} and {self._name(pair[1])}"

    def _name(self, geom: int) -> str:
        model = self._model
        body = model.body(model.geom_bodyid[geom]).name
        return model.geom(geom).name or f"geom {geom} of {body}"


class _Pieces:
    """The parts that boxes are compared with, each cut into boxes of its own.

    Args:
        model: the model of the robot.
        geoms: the parts.

    Attributes:
        geoms: the part of each piece.
        reaches_m: the distance of each piece's farthest corner from the middle of its part, at most, metres.
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
        self._sizes = [(middle.tolist(), half.tolist()) for middle, half in zip(middles, halves, strict=True)]
        self.reaches_m: list[float] = [
            float(np.linalg.norm(middle) + np.linalg.norm(half)) for middle, half in zip(middles, halves, strict=True)
        ]

    def distances_m(
        self, data: mujoco.MjData, outside: np.ndarray, inside: np.ndarray, numbers: np.ndarray
    ) -> np.ndarray:
        """Return the distances of pieces from boxes: how far outside of the ones and inside of the others they are.

        Args:
            data: with the poses of the geoms.
            outside: middle and half size of each outer box, (n, 2, 3).
            inside: middle and half size of each inner box, (n, 2, 3).
            numbers: the distances, numbered box by box: ``box * pieces + piece``, ascending.
        """
        if len(numbers) <= _FEW:
            return np.array([self._distance_m(data, outside, inside, number) for number in numbers.tolist()])
        box, piece = np.divmod(numbers, len(self.geoms))
        geoms = self._index[piece]
        turn = data.geom_xmat[geoms].reshape(-1, 3, 3)
        middle = data.geom_xpos[geoms] + (turn @ self._middles[piece])[:, :, 0]
        half = (np.abs(turn) @ self._halves[piece])[:, :, 0]
        split = int(np.searchsorted(box, len(outside)))
        distances: np.ndarray = np.empty(len(numbers))
        if split:
            to = outside[box[:split]]
            gaps = np.abs(middle[:split] - to[:, 0]) - (to[:, 1] + half[:split])
            beyond = np.maximum(gaps, 0.0)
            distances[:split] = np.sqrt(np.einsum("ni,ni->n", beyond, beyond)) + np.minimum(gaps.max(1), 0.0)
        if split < len(numbers):
            to = inside[box[split:] - len(outside)]
            distances[split:] = (to[:, 1] - half[split:] - np.abs(middle[split:] - to[:, 0])).min(1)
        return distances

    def _distance_m(self, data: mujoco.MjData, outside: np.ndarray, inside: np.ndarray, number: int) -> float:
        """Return one of `distances_m`: for a few of them Python's floats are faster than short arrays."""
        box, piece = divmod(number, len(self.geoms))
        geom = self.geoms[piece]
        turn, at = data.geom_xmat[geom].tolist(), data.geom_xpos[geom].tolist()
        (mx, my, mz), (hx, hy, hz) = self._sizes[piece]
        within = box >= len(outside)
        middles, halves = (inside[box - len(outside)] if within else outside[box]).tolist()
        gaps: list[float] = []
        for axis in range(3):
            a, b, c = turn[3 * axis : 3 * axis + 3]
            apart = abs(at[axis] + a * mx + b * my + c * mz - middles[axis])
            half = abs(a) * hx + abs(b) * hy + abs(c) * hz
            gaps.append(halves[axis] - half - apart if within else apart - halves[axis] - half)
        if within:
            return min(gaps)
        return math.hypot(*(max(gap, 0.0) for gap in gaps)) + min(max(gaps), 0.0)


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
