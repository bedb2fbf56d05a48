"""Errands at the table: what is drawn, judged and said."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal.robots.so101 import CUBE_HALF
from rlenv_robot.registry import task
from rlenv_tabletop.errand import TRAYS, Errand

LEFT, RIGHT = ((*TRAYS[name], CUBE_HALF) for name in ("left", "right"))


def sensors(*cubes: tuple[float, float, float], jaw: float = 0.8) -> dict[str, np.ndarray]:
    joints = np.zeros(6, np.float32)
    joints[5] = jaw
    return {"cube_positions": np.array(cubes, np.float32), "joint_position": joints}


def goal(*places: int, likeness: int = -1) -> dict[str, np.ndarray]:
    return {"places": np.array(places, np.int32), "likeness": np.array(likeness, np.int32)}


def test_an_errand_is_done_where_the_cube_lies_in_its_tray_and_is_let_go() -> None:
    made = Errand(cubes=2)
    away = (0.2, 0.0, CUBE_HALF)
    assert made.success(sensors(LEFT, away), goal(0, -1))
    assert not made.success(sensors(LEFT, away, jaw=0.0), goal(0, -1))
    assert not made.success(sensors(RIGHT, away), goal(0, -1))
    assert not made.success(sensors((LEFT[0], LEFT[1], 0.08), away), goal(0, -1))
    assert made.success(sensors(RIGHT, LEFT), goal(1, 0))
    assert not made.success(sensors(RIGHT, away), goal(1, 0))


def test_a_stack_is_a_cube_on_another() -> None:
    made = Errand("stack", cubes=2)
    base = (0.2, 0.0, CUBE_HALF)
    assert made.success(sensors((0.205, 0.0, 3 * CUBE_HALF), base), goal(3, -1))
    assert not made.success(sensors((0.23, 0.0, 3 * CUBE_HALF), base), goal(3, -1))
    assert not made.success(sensors((0.205, 0.0, CUBE_HALF), base), goal(3, -1))


@pytest.mark.requirement("R3.1")
def test_one_row_and_a_batch_of_rows_are_judged_alike() -> None:
    made, rng = Errand("sort", cubes=3), np.random.default_rng(0)
    before, after = (
        {
            "cube_positions": rng.uniform((0.1, -0.2, 0.01), (0.3, 0.2, 0.05), (50, 3, 3)).astype(np.float32),
            "joint_position": rng.uniform(0, 1, (50, 6)).astype(np.float32),
        }
        for _ in range(2)
    )
    after["cube_positions"][::5] = (LEFT, RIGHT, RIGHT)
    wanted = goal(0, 1, 1)
    batch = made.reward(before, {}, after, wanted)
    rows = [
        made.reward({k: v[i] for k, v in before.items()}, {}, {k: v[i] for k, v in after.items()}, wanted)
        for i in range(50)
    ]
    np.testing.assert_allclose(batch, rows)
    assert made.success(after, wanted)[::5].any()


def test_dense_rewards_add_up_to_the_change_and_sparse_ones_to_one() -> None:
    away, near = sensors((0.2, 0.0, CUBE_HALF)), sensors((0.2, 0.1, 0.05), jaw=0.0)
    done, wanted = sensors(LEFT), goal(0)
    dense, sparse = Errand(), Errand(rewards="sparse")
    path = [away, near, done]
    total = sum(float(dense.reward(one, {}, other, wanted)) for one, other in itertools.pairwise(path))
    assert total == pytest.approx(1 + dense._potential(done, wanted) - dense._potential(away, wanted))
    assert [float(sparse.reward(one, {}, other, wanted)) for one, other in itertools.pairwise(path)] == [0.0, 1.0]


def test_draws_cover_all_errands_and_words_describe_them() -> None:
    rng = np.random.default_rng(1)
    for kind, cubes in (("fetch", 1), ("fetch", 4), ("sort", 3), ("stack", 2)):
        made: Any = Errand(kind, cubes=cubes, described="likeness" if cubes == 4 else "colour")  # type: ignore[arg-type]
        said = set()
        for _ in range(250):
            drawn = made.begin(rng, {}).goal
            made.goal.validate(drawn)
            seen = {**sensors(*[(0.2, 0.1 * n, CUBE_HALF) for n in range(cubes)]), **drawn,
                    "gripper_position": np.zeros(3, np.float32)}  # fmt: skip
            said.add(made.write(seen).splitlines()[0])
        assert len(said) == {1: 2, 4: 24, 3: 1, 2: 2}[cubes], said


def test_likenesses_and_places_are_words() -> None:
    made = Errand(cubes=3, described="likeness")
    seen = {
        **sensors(*[(0.25, 0.1, CUBE_HALF)] * 3, jaw=0.0),
        "gripper_position": np.array((0.25, 0.1, 0.02), np.float32),
    }
    text = made.write({**seen, **goal(-1, 1, -1, likeness=0)})
    assert text.startswith("Task: bring the cube in the colour of grass to the right tray.")
    assert text.endswith("Gripper: holds red.")


def test_the_table_has_as_many_cubes_as_asked_apart_from_each_other() -> None:
    for cubes in (1, 4):
        env = rr.make("so101-errand", cubes=cubes, area=1.0)
        for seed in range(5):
            places = env.reset({"seed": seed})["observation"]["cube_positions"]
            assert places.shape == (cubes, 3)
            gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.eye(cubes)
            assert gaps.min() > 0.06
        env.close()
    with pytest.raises(ValueError, match="room"):
        rr.make("so101-errand", cubes=4, area=0.05)


@pytest.mark.parametrize(
    "wrong",
    [{"errand": "juggle"}, {"cubes": 5}, {"errand": "stack"}, {"area": 0}, {"described": "smell"}, {"steps": 0}],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        task("so101-errand", **wrong)
