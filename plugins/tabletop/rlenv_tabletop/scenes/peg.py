"""The simulated SO-101 arm with an upright peg and a socket for it."""

from __future__ import annotations

import mujoco
import numpy as np

from rlenv_tabletop.robots.peg import PEG_AREA, PEG_HALF, RIM_Z, SO101_PEG, SOCKET_AREA, SOCKET_TURN
from rlenv_tabletop.scenes.fixture import add_board, add_fixed_thing, look_at
from sim.model import Columns, Reader, SimModel
from sim.robots.so101 import REST, so101_mjcf, with_arm, with_nominal_servos
from sim.robots.twin import IDENTIFIED, TwinServos, arm_twin

__all__ = ["PLAY_M", "so101_peg", "so101_peg_mjcf", "so101_peg_twin"]

PLAY_M = 0.002
"""Width of the nominal socket less that of the peg, metres."""

_WALL_M = 0.016
_CHAMFER_M = 0.004
"""Width and depth of the slope around the socket's mouth, metres."""

_PEG = (0.86, 0.24, 0.18, 1.0)
_SOCKET = (0.25, 0.33, 0.50, 1.0)


def so101_peg(looks: bool = True, play_m: float = PLAY_M) -> SimModel:
    """Make the nominal model of the arm, the peg and the socket.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
        play_m: how much wider the socket is than the peg, metres, above 0 to 0.01.

    Raises:
        ValueError: the play is out of range.
    """
    model = so101_peg_mjcf(looks, play_m).compile()
    first, peg = int(model.joint("socket_x").qposadr[0]), int(model.joint("peg").qposadr[0])
    things: dict[str, Reader] = {
        "peg_position": Columns("qpos", slice(peg, peg + 3)),
        "peg_orientation": Columns("qpos", slice(peg + 3, peg + 7)),
        "socket_position": Columns("qpos", slice(first, first + 2)),
        "socket_yaw": Columns("qpos", slice(first + 2, first + 3)),
    }
    return with_arm(with_nominal_servos(SO101_PEG), model, things, _PegScatter(first, peg))


def so101_peg_mjcf(looks: bool = True, play_m: float = PLAY_M) -> mujoco.MjSpec:
    """Return the editable MJCF; its only keyframe is ``rest``. The socket's frame is in its middle, on the table.

    Args:
        looks, play_m: as for `so101_peg`.

    Raises:
        ValueError: the play is out of range.
    """
    if not 0 < play_m <= 0.01:
        raise ValueError(f"play_m is {play_m}, it must be above 0 and at most 0.01")
    mjcf = so101_mjcf(looks=looks)
    mjcf.delete(mjcf.key("rest"))
    look_at(mjcf, (0.66, -0.30, 0.36), (0.19, 0.0, 0.07))
    socket = add_fixed_thing(mjcf, "socket")
    hole, upright = PEG_HALF[0] + play_m / 2, RIM_Z - _CHAMFER_M
    outer, mouth = hole + _WALL_M, hole + _CHAMFER_M
    slope = _CHAMFER_M / np.sqrt(2)
    for number in range(4):
        boards = [
            add_board(socket, f"socket_low_{number}", (hole, -outer, 0.0), (outer, hole, upright), _SOCKET),
            add_board(socket, f"socket_rim_{number}", (mouth, -outer, upright), (outer, mouth, RIM_Z), _SOCKET),
            add_board(socket, f"socket_chamfer_{number}", (-slope, -mouth, -2 * slope), (slope, mouth, 0.0), _SOCKET),
        ]
        chamfer, middle = boards[-1], np.array([hole + _CHAMFER_M / 2, 0.0, upright + _CHAMFER_M / 2])
        chamfer.quat = (np.cos(np.pi / 8), 0.0, -np.sin(np.pi / 8), 0.0)  # its upper face rises outwards
        chamfer.pos = middle - slope * np.array([-np.sqrt(0.5), 0.0, np.sqrt(0.5)])
        for board in boards:
            _turn(board, number * np.pi / 2)
    peg = mjcf.worldbody.add_body(name="peg", pos=(0.2, -0.07, PEG_HALF[2]))
    peg.add_freejoint(name="peg")
    peg.add_geom(
        name="peg", type=mujoco.mjtGeom.mjGEOM_BOX, size=PEG_HALF, mass=0.020, rgba=_PEG,
        contype=1, conaffinity=5, condim=4, friction=(0.6, 0.02, 0.0002), solimp=(0.98, 0.999, 0.001, 0.5, 2.0),
    )  # fmt: skip
    rest = [*REST, 0.2, 0.06, 0.0, 0.2, -0.07, PEG_HALF[2], 1.0, 0.0, 0.0, 0.0]
    mjcf.add_key(name="rest", qpos=rest, ctrl=list(REST))
    return mjcf


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
    """Make a stand-in for the real arm with a peg; arguments as for `sim.robots.twin.so101_twin` and `so101_peg`.

    A sibling's peg also has another mass and friction (`sim.robots.twin.thing_factors`).
    """
    return arm_twin(so101_peg(play_m=play_m), so101_peg_mjcf(play_m=play_m), seed, servos, things=["peg"])
