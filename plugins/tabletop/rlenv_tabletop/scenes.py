"""Simulate the SO-101 with objects on its table, from the MJCF in ``mjcf/``, nominally and as twins of real arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import mujoco
import numpy as np

from hal.robot import Actuation, RobotSpec
from hal.robots.so101 import CHAIN, CUBE_HALF, JOINTS
from rlenv_tabletop.robots import (
    APART,
    BAR_HALF,
    BOX_AREA,
    BOX_TURN,
    CABINET_AREA,
    CABINET_TURN,
    COLOURS,
    PEG_AREA,
    PEG_HALF,
    RIM_Z,
    SIDES,
    SO101_BOX,
    SO101_CABINET,
    SO101_PAIR,
    SO101_PEG,
    SOCKET_AREA,
    SOCKET_TURN,
    TABLE_AREA,
    TRAVEL,
    TRAYS,
    WIDEST,
    from_right,
    so101_table_spec,
)
from sim.model import Columns, Computed, Indices, Reader, SimModel
from sim.robots.so101 import NOMINAL_GAINS, REST, SUBSTEPS, so101_mjcf, with_arm, with_nominal_servos
from sim.robots.twin import IDENTIFIED, TwinServos, arm_twin

__all__ = [
    "BAR_AREA", "BAR_TURN", "PLAY_M", "FixtureScatter", "so101_box", "so101_box_twin", "so101_cabinet",
    "so101_cabinet_twin", "so101_pair", "so101_pair_twin", "so101_peg", "so101_peg_twin", "so101_table",
    "so101_table_twin",
]  # fmt: skip

_MJCF = Path(__file__).parent / "mjcf"

_MOST_DRAWS = 1000

Places = tuple[float, float]
"""The ends of a range, metres or rad."""


def _scene(name: str, looks: bool, things: Sequence[float]) -> mujoco.MjSpec:
    """Return the editable MJCF of a scene; its only keyframe is ``rest``, with the things at these places."""
    return so101_mjcf(looks=looks, scene=_MJCF / f"{name}.xml", things=things)


def _look_at(mjcf: mujoco.MjSpec, place: tuple[float, float, float], point: tuple[float, float, float]) -> None:
    """Move the camera ``view``, and turn it.

    Args:
        mjcf: the model.
        place: where the camera is, metres.
        point: what is in the middle of its images, metres.
    """
    forward = np.subtract(point, place)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    up = np.cross(right, forward)
    camera = mjcf.camera("view")
    camera.pos, camera.fovy = place, 34.0
    camera.alt.xyaxes = [*right / np.linalg.norm(right), *up / np.linalg.norm(up)]


# -- A clamped thing with one part that moves: a box with a lid, a cabinet with a drawer ------------------------


def so101_box(looks: bool = True, angle: Places = (0.0, 0.0)) -> SimModel:
    """Make the nominal simulation model of the arm and the box.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
        angle: range from which a reset draws the lid's angle, rad, within 0 to `WIDEST`.

    Raises:
        ValueError: the range is empty or exceeds its limits.
    """
    return _with_box(_box_mjcf(looks).compile(), angle)


def _with_box(model: mujoco.MjModel, angle: Places) -> SimModel:
    if not 0 <= angle[0] <= angle[1] <= WIDEST:
        raise ValueError(f"angle is {angle}, it must be a range within 0 to {WIDEST} rad")
    return _with_part(SO101_BOX, model, "box", "lid", "lid_angle", BOX_AREA, BOX_TURN, angle)


def _box_mjcf(looks: bool = True) -> mujoco.MjSpec:
    mjcf = _scene("box", looks, (0.28, 0.0, 0.0, 0.0))
    _look_at(mjcf, (0.12, -0.72, 0.40), (0.20, 0.0, 0.09))
    return mjcf


def so101_cabinet(looks: bool = True, opening: Places = (0.0, 0.0)) -> SimModel:
    """Make the nominal simulation model of the arm and the cabinet.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
        opening: range from which a reset draws the drawer's opening, metres, within 0 to `TRAVEL`.

    Raises:
        ValueError: the range is empty or exceeds its limits.
    """
    return _with_cabinet(_cabinet_mjcf(looks).compile(), opening)


def _with_cabinet(model: mujoco.MjModel, opening: Places) -> SimModel:
    if not 0 <= opening[0] <= opening[1] <= TRAVEL:
        raise ValueError(f"opening is {opening}, it must be a range within 0 to {TRAVEL} m")
    return _with_part(SO101_CABINET, model, "cabinet", "drawer", "drawer_opening", CABINET_AREA, CABINET_TURN, opening)


def _cabinet_mjcf(looks: bool = True) -> mujoco.MjSpec:
    mjcf = _scene("cabinet", looks, (0.27, 0.0, 0.0, 0.0))
    _look_at(mjcf, (0.08, -0.72, 0.42), (0.20, 0.0, 0.09))
    return mjcf


def _with_part(
    spec: RobotSpec, model: mujoco.MjModel, thing: str, part: str, place: str,
    area: tuple[tuple[float, float], tuple[float, float]], turn: float, places: Places,
) -> SimModel:  # fmt: skip
    """Return the model of the arm before a clamped thing with one moving part, both of which a reset places.

    Args:
        spec: spec of the robot. Its sensors beside the arm's are ``THING_position``, ``THING_yaw``, ``place``, and the
            rate of ``place`` under the name of the part.
        model: compiled, with the joints ``THING_x``, ``THING_y``, ``THING_yaw`` and that of the part.
        thing: name of the clamped thing.
        part: name of its part's joint.
        place: the sensor of the part's place along its joint.
        area: as for `FixtureScatter`.
        turn: as for `FixtureScatter`.
        places: as for `FixtureScatter`.
    """
    first, moving = int(model.joint(f"{thing}_x").qposadr[0]), int(model.joint(part).qposadr[0])
    things: dict[str, Reader] = {
        f"{thing}_position": Columns("qpos", slice(first, first + 2)),
        f"{thing}_yaw": Columns("qpos", slice(first + 2, first + 3)),
        place: Columns("qpos", slice(moving, moving + 1)),
        f"{part}_velocity": Columns("qvel", (int(model.joint(part).dofadr[0]),)),
    }
    return with_arm(with_nominal_servos(spec), model, things, FixtureScatter(first, moving, area, turn, places))


@dataclass(frozen=True, slots=True)
class FixtureScatter:
    """Place a fixture at a random position and angle on the table, facing the arm, with a random opening.

    Attributes:
        first: index in ``qpos`` of the fixture's x, followed by y and yaw.
        moving: index in ``qpos`` of the fixture's moving part.
        area: range of x and range of y, metres.
        turn: largest angle between the fixture and the line from the arm's shoulder to it, rad.
        places: range of the moving part's positions, in the unit of its joint.
    """

    first: int
    moving: int
    area: tuple[tuple[float, float], tuple[float, float]]
    turn: float
    places: Places

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Draw position, angle and place, and write them into ``qpos``."""
        x, y = (generator.uniform(low, high) for low, high in self.area)
        heading = np.arctan2(y, x - CHAIN[0].offset[0])
        qpos[self.first : self.first + 3] = (x, y, heading + generator.uniform(-self.turn, self.turn))
        qpos[self.moving] = generator.uniform(*self.places)


def so101_box_twin(seed: int = 0, servos: TwinServos = IDENTIFIED, angle: Places = (0.0, 0.0)) -> SimModel:
    """Make a twin of the real arm at a box; arguments as for `sim.robots.twin.so101_twin` and `so101_box`.

    A twin with ``seed`` above 0 also has another mass and friction of the lid (`sim.robots.twin.thing_factors`).
    """
    return arm_twin(partial(_with_box, angle=angle), _box_mjcf(), seed, servos, parts=["lid"])


def so101_cabinet_twin(seed: int = 0, servos: TwinServos = IDENTIFIED, opening: Places = (0.0, 0.0)) -> SimModel:
    """Make a twin of the real arm at a cabinet; arguments as for `sim.robots.twin.so101_twin` and `so101_cabinet`.

    A twin with ``seed`` above 0 also has another mass and friction of the drawer (`sim.robots.twin.thing_factors`).
    """
    return arm_twin(partial(_with_cabinet, opening=opening), _cabinet_mjcf(), seed, servos, parts=["drawer"])


# -- A peg and a socket -----------------------------------------------------------------------------------------


PLAY_M = 0.002
"""Width of the nominal socket minus that of the peg, metres."""

_WALL_M = 0.016
_CHAMFER_M = 0.004
"""Width and depth of the slope around the socket's mouth, metres."""
_SOCKET_RGBA = (0.25, 0.33, 0.50, 1.0)


def so101_peg(looks: bool = True, play_m: float = PLAY_M) -> SimModel:
    """Make the nominal simulation model of the arm, the peg and the socket.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
        play_m: width of the socket minus that of the peg, metres, above 0 and at most 0.01.

    Raises:
        ValueError: the play is out of range.
    """
    return _with_peg(_peg_mjcf(looks, play_m).compile())


def _with_peg(model: mujoco.MjModel) -> SimModel:
    first, peg = int(model.joint("socket_x").qposadr[0]), int(model.joint("peg").qposadr[0])
    things: dict[str, Reader] = {
        "peg_position": Columns("qpos", slice(peg, peg + 3)),
        "peg_orientation": Columns("qpos", slice(peg + 3, peg + 7)),
        "socket_position": Columns("qpos", slice(first, first + 2)),
        "socket_yaw": Columns("qpos", slice(first + 2, first + 3)),
    }
    return with_arm(with_nominal_servos(SO101_PEG), model, things, _PegScatter(first, peg))


def _peg_mjcf(looks: bool = True, play_m: float = PLAY_M) -> mujoco.MjSpec:
    if not 0 < play_m <= 0.01:
        raise ValueError(f"play_m is {play_m}, it must be above 0 and at most 0.01")
    mjcf = _scene("peg", looks, (0.2, 0.06, 0.0, 0.2, -0.07, PEG_HALF[2], 1.0, 0.0, 0.0, 0.0))
    _look_at(mjcf, (0.66, -0.30, 0.36), (0.19, 0.0, 0.07))
    hole, upright = PEG_HALF[0] + play_m / 2, RIM_Z - _CHAMFER_M
    outer, mouth = hole + _WALL_M, hole + _CHAMFER_M
    slope = _CHAMFER_M / np.sqrt(2)
    for number in range(4):
        boards = [
            _add_wall(mjcf, f"socket_low_{number}", (hole, -outer, 0.0), (outer, hole, upright)),
            _add_wall(mjcf, f"socket_rim_{number}", (mouth, -outer, upright), (outer, mouth, RIM_Z)),
            _add_wall(mjcf, f"socket_chamfer_{number}", (-slope, -mouth, -2 * slope), (slope, mouth, 0.0)),
        ]
        chamfer, middle = boards[-1], np.array([hole + _CHAMFER_M / 2, 0.0, upright + _CHAMFER_M / 2])
        chamfer.quat = (np.cos(np.pi / 8), 0.0, -np.sin(np.pi / 8), 0.0)  # its upper face rises outwards
        chamfer.pos = middle - slope * np.array([-np.sqrt(0.5), 0.0, np.sqrt(0.5)])
        for board in boards:
            _turn(board, number * np.pi / 2)
    return mjcf


def _add_wall(
    mjcf: mujoco.MjSpec, name: str, low: tuple[float, float, float], high: tuple[float, float, float]
) -> mujoco.MjsGeom:
    """Add a board between two opposite corners to the socket, metres."""
    size = (np.asarray(high) - np.asarray(low)) / 2
    return mjcf.body("socket").add_geom(
        mjcf.find_default("board"), name=name, pos=np.mean((low, high), axis=0), size=size, rgba=_SOCKET_RGBA
    )


def _turn(geom: mujoco.MjsGeom, angle: float) -> None:
    """Turn a geom about the vertical through the origin of its body, rad."""
    turn, quat = np.array((np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))), np.zeros(4)
    mujoco.mju_mulQuat(quat, turn, geom.quat)
    place = np.zeros(3)
    mujoco.mju_rotVecQuat(place, geom.pos, turn)
    geom.pos, geom.quat = place, quat


class _PegScatter:
    """Put the peg on one side of the table and the socket on the other, both turned by random angles."""

    def __init__(self, first: int, peg: int) -> None:
        self._first, self._peg = first, peg

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        peg, socket = ([generator.uniform(*ends) for ends in area] for area in (PEG_AREA, SOCKET_AREA))
        mirror = generator.choice((-1.0, 1.0))
        yaw, turn = generator.uniform(-np.pi / 4, np.pi / 4), generator.uniform(-SOCKET_TURN, SOCKET_TURN)
        qpos[self._first : self._first + 3] = (socket[0], mirror * socket[1], turn)
        upright = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
        qpos[self._peg : self._peg + 7] = (peg[0], mirror * peg[1], PEG_HALF[2], *upright)


def so101_peg_twin(seed: int = 0, servos: TwinServos = IDENTIFIED, play_m: float = PLAY_M) -> SimModel:
    """Make a twin of the real arm with a peg; arguments as for `sim.robots.twin.so101_twin` and `so101_peg`.

    A twin with ``seed`` above 0 also has another mass and friction of the peg (`sim.robots.twin.thing_factors`).
    """
    return arm_twin(_with_peg, _peg_mjcf(play_m=play_m), seed, servos, things=["peg"])


# -- Cubes ------------------------------------------------------------------------------------------------------


_APART_M = 0.065
"""Least distance between two cubes at a reset, metres; the open gripper fits between them."""


def so101_table(cubes: int, area: float = 1.0, looks: bool = True, trays: bool = False) -> SimModel:
    """Make the nominal simulation model with cubes of 25 mm, as `sim.robots.so101.so101` does with one cube.

    Args:
        cubes: number of cubes, 1 to 4; the reset's seed draws their positions.
        area: share of the table's area (in width and in depth) on which the cubes lie, above 0 to 1.
        looks: whether the model has its visual parts.
        trays: whether the visual parts include the trays, which have no collisions.

    Raises:
        ValueError: the number of cubes is out of range, or the area is too small for them.
    """
    return _with_cubes(_table_mjcf(cubes, looks, trays).compile(), cubes, area)


def _with_cubes(model: mujoco.MjModel, cubes: int, area: float) -> SimModel:
    first = [int(model.joint(f"{colour}_cube").qposadr[0]) for colour in COLOURS[:cubes]]
    things: dict[str, Reader] = {
        "cube_positions": Columns("qpos", tuple(at + axis for at in first for axis in range(3))),
        "cube_orientations": Columns("qpos", tuple(at + 3 + axis for at in first for axis in range(4))),
    }
    return with_arm(with_nominal_servos(so101_table_spec(cubes)), model, things, _CubesScatter(first, area))


def _table_mjcf(cubes: int, looks: bool = True, trays: bool = False) -> mujoco.MjSpec:
    things: list[float] = []
    for number in range(cubes):
        things += [0.2 + 0.03 * number, 0.0, CUBE_HALF, 1.0, 0.0, 0.0, 0.0]
    mjcf = _scene("table", looks, things)
    for colour in COLOURS[cubes:]:
        mjcf.delete(mjcf.body(f"{colour}_cube"))
    if looks and not trays:
        for name in TRAYS:
            mjcf.delete(mjcf.geom(f"{name}_tray"))
    return mjcf


class _CubesScatter:
    """Put the cubes at random positions on the table, apart from each other, turned by random angles."""

    def __init__(self, first: list[int], area: float) -> None:
        if not 0 < area <= 1:
            raise ValueError(f"area is {area}, it must be above 0 and at most 1")
        self._first = first
        self._ranges = [
            ((low + high) / 2 - area * (high - low) / 2, (low + high) / 2 + area * (high - low) / 2)
            for low, high in TABLE_AREA
        ]
        self._places(np.random.default_rng(0))  # refuse an area without room now, not at a reset

    def _places(self, generator: np.random.Generator) -> np.ndarray:
        lows, highs = zip(*self._ranges, strict=True)
        for _ in range(_MOST_DRAWS):
            places = generator.uniform(lows, highs, (len(self._first), 2))
            gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.eye(len(places))
            if gaps.min() >= _APART_M:
                return places
        raise ValueError(f"{len(self._first)} cubes have no room {_APART_M} m apart in {self._ranges}")

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        for at, (x, y) in zip(self._first, self._places(generator).tolist(), strict=True):
            angle = generator.uniform(-np.pi / 4, np.pi / 4)  # a cube looks the same after a quarter turn
            qpos[at : at + 7] = (x, y, CUBE_HALF, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))


def so101_table_twin(cubes: int, area: float = 1.0, seed: int = 0, servos: TwinServos = IDENTIFIED) -> SimModel:
    """Make a twin of the real arm at a table with cubes; arguments as for `so101_table` and `so101_twin`.

    In a twin with ``seed`` above 0 all cubes share another mass and friction (`sim.robots.twin.thing_factors`). The
    cubes' poses are measured exactly.
    """
    names = [f"{colour}_cube" for colour in COLOURS[:cubes]]
    return arm_twin(partial(_with_cubes, cubes=cubes, area=area), _table_mjcf(cubes), seed, servos, things=names)


# -- Two arms and a bar -----------------------------------------------------------------------------------------


BAR_AREA = ((0.28, 0.32), (-0.04, 0.04))
"""Range of x and range of y of the bar's middle at a reset, metres."""

BAR_TURN = 0.2
"""Largest angle between the bar and the line through the bases at a reset, rad."""

_SOLID, _SHELL = 1, 8
"""Collision bits in ``so101.xml``: of the arm with table and cube, and within the arm."""


def so101_pair(looks: bool = True) -> SimModel:
    """Make the nominal simulation model of the two arms and the bar.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
    """
    return _with_pair(_pair_mjcf(looks).compile())


def _with_pair(model: mujoco.MjModel) -> SimModel:
    bar, dof = int(model.joint("bar").qposadr[0]), int(model.joint("bar").dofadr[0])
    sensors: dict[str, Reader] = {
        "bar_position": Columns("qpos", slice(bar, bar + 3)),
        "bar_orientation": Columns("qpos", slice(bar + 3, bar + 7)),
        "bar_velocity": Columns("qvel", slice(dof, dof + 3)),
        "bar_turning": Columns("qvel", slice(dof + 3, dof + 6)),
    }
    commands: dict[str, Indices] = {}
    start: dict[str, Indices] = {}
    for side in SIDES:
        names = [f"{side}_{joint}" for joint in JOINTS]
        joints = tuple(int(model.joint(name).qposadr[0]) for name in names)
        tip = 3 * model.site(f"{side}_tip").id
        tips = Columns("site_xpos", slice(tip, tip + 3))
        sensors |= {
            f"{side}_joint_position": Columns("qpos", joints),
            f"{side}_joint_velocity": Columns("qvel", tuple(int(model.joint(name).dofadr[0]) for name in names)),
            f"{side}_joint_goal": Columns("ctrl", tuple(int(model.actuator(name).id) for name in names)),
            f"{side}_gripper_position": tips if side == "left" else Computed(from_right, (tips,)),
        }
        commands[f"{side}_joint_target"] = tuple(int(model.actuator(name).id) for name in names)
        start[f"{side}_joint_target"] = joints
    spec = replace(SO101_PAIR, actuation=Actuation.for_all(SO101_PAIR.commands, NOMINAL_GAINS))
    return SimModel(spec, model, SUBSTEPS, sensors, commands, start, keyframe=0, scatter=_BarScatter(bar))


def _pair_mjcf(looks: bool = True) -> mujoco.MjSpec:
    scene = mujoco.MjSpec.from_file(str(_MJCF / "pair.xml"))
    poses = {"left": ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)), "right": ((APART, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))}
    for side, (position, turn) in poses.items():
        arm = so101_mjcf(looks=looks)
        arm.delete(arm.key("rest"))
        for geom in arm.geoms:
            own = 1 if side == "left" else 2  # each arm's links collide with links of that arm alone
            shells = [own * (bits & _SHELL) for bits in (geom.contype, geom.conaffinity)]
            others = (0, 0)
            if geom.contype & _SOLID:  # each arm collides with table and bar, and with the other arm
                others = (1, 4) if side == "left" else (5, 0)
            geom.contype, geom.conaffinity = shells[0] + others[0], shells[1] + others[1]
        scene.worldbody.add_frame(pos=position, quat=turn).attach_body(arm.body("base"), f"{side}_", "")
    if not looks:
        for geom in [geom for geom in scene.geoms if not (geom.contype or geom.conaffinity or geom.mass)]:
            scene.delete(geom)
    bar = [APART / 2, 0.0, BAR_HALF[2], 1.0, 0.0, 0.0, 0.0]
    scene.add_key(name="rest", qpos=[*bar, *REST, *REST], ctrl=[*REST, *REST])
    return scene


class _BarScatter:
    """Put the bar at a random position on the table, turned by a small random angle."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        (x0, x1), (y0, y1) = BAR_AREA
        angle = generator.uniform(-BAR_TURN, BAR_TURN)
        position = (generator.uniform(x0, x1), generator.uniform(y0, y1), BAR_HALF[2])
        turn = (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
        qpos[self._first : self._first + 7] = (*position, *turn)


def so101_pair_twin(seed: int = 0, servos: TwinServos = IDENTIFIED) -> SimModel:
    """Make a twin of two real arms with the bar between them; arguments as for `sim.robots.twin.so101_twin`.

    Seed 0 has the identified arm twice; any other seed gives two different arms, and a bar of another mass and friction
    (`sim.robots.twin.thing_factors`).
    """
    sides = [f"{side}_" for side in SIDES]
    return arm_twin(_with_pair, _pair_mjcf(), seed, servos, things=["bar"], sides=sides)
