from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import Field, Spec
from rlenv_robot.adapters.flat import Difference, FlattenObservation, flat_for
from rlenv_robot.registry import task

SEEN = Spec(
    "seen",
    (
        Field("place", (2,), "float32", -4, 4, "m"),
        Field("goal", (2,), "float32", (-1, 0), (1, 8), "m"),
        Field("count", (), "int32", 0, 10),
        Field("open", (), "float64"),
    ),
)
DONE = Spec("done", (Field("push", (2,), "float32", (-1, -2), (1, 6), "m"), Field("grip", (), "float64", 0, 1)))
GAP = Difference("goal", "place", 0.5)


def test_the_order_is_the_specs_then_the_differences() -> None:
    flat = FlattenObservation(SEEN, DONE, {"open": 2.0}, (GAP,))
    observation = {
        "place": np.array([[2, 4]], "f"),
        "goal": np.array([[1, 2]], "f"),
        "count": np.array([5]),
        "open": [3.0],
    }
    vector = flat.observe(observation)
    assert (vector.dtype, vector.shape, flat.size) == (np.float32, (1, 8), 8)
    np.testing.assert_allclose(vector[0], [0.5, 1, 1, 0.5, 1, 1.5, -2, -4])


def test_far_values_are_cut_off() -> None:
    flat = FlattenObservation(SEEN, DONE)
    observation = {"place": np.zeros(2), "goal": np.zeros(2), "count": np.array(0), "open": np.array(1e6)}
    assert flat.observe(observation)[-1] == FlattenObservation.LIMIT


def test_an_action_spans_the_range_exactly() -> None:
    flat = FlattenObservation(SEEN, DONE)
    for vector, push, grip in ((-1, (-1, -2), 0), (1, (1, 6), 1), (0, (0, 2), 0.5), (7, (1, 6), 1)):
        action = flat.act(np.full(3, vector), {})
        assert action["push"].tolist() == list(push)
        assert (action["grip"], action["grip"].dtype) == (grip, np.float64)


def test_what_moves_around_nothing_keeps_its_range() -> None:
    flat = FlattenObservation(SEEN, DONE, around={"push": "goal"}, stride=0.5)
    observation = {"goal": np.array([[0.2, 3.0], [0.9, 0.0]])}
    action = flat.act(np.array([[1.0, -1.0, -1.0], [1.0, -1.0, 0.0]]), observation)
    np.testing.assert_allclose(action["push"], [[0.7, 2.5], [1.0, -0.5]], rtol=1e-6)
    np.testing.assert_allclose(action["grip"], [0.0, 0.5])


@pytest.mark.parametrize("name", ["go2-walk", "so101-pair-lift", "so101-pick-place", "so101-push", "so101-reach"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_recorded_action_comes_back_as_its_vector(name: str, plain: bool) -> None:
    chosen = task(name)
    flat = FlattenObservation(chosen.observation, chosen.action) if plain else flat_for(chosen)
    rng = np.random.default_rng(0)
    observation = chosen.observation.sample(rng, (50,))
    for name, held in flat.held.items():
        middle = np.mean(chosen.action[name].bounds, axis=0)  # far from the ends, which cut off
        observation[held][..., : len(middle)] = middle
    vector = rng.uniform(-1, 1, (50, flat.action_size))
    chosen.action.validate({name: value[0] for name, value in flat.act(vector, observation).items()})
    np.testing.assert_allclose(flat.vector_of(flat.act(vector, observation), observation), vector, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": {"plce": 1.0}}, "'plce' is not an observation field, allowed: place, goal"),
        ({"scales": {"place": 0.0}}, "every scale must be above 0"),
        ({"differences": (Difference("goal", "count", 1.0),)}, "'goal' and 'count' differ in shape"),
        ({"around": "goal", "stride": 1.0}, "one action field of its shape"),
        ({"around": {"push": "goal"}}, "a stride above 0"),
        ({"around": {"pull": "goal"}, "stride": 1.0}, "one action field of its shape"),
        ({"around": {"grip": "goal"}, "stride": 1.0}, "one action field of its shape"),
        ({"around": {"push": "gaol"}, "stride": 1.0}, "'gaol' is not an observation field"),
        ({"action": Spec("a", (Field("far"),))}, "'far' is not a float field with a finite range"),
        ({"action": Spec("a", (Field("gear", (), "int8", 0, 3),))}, "'gear' is not a float field"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlattenObservation(**{"observation": SEEN, "action": DONE, **change})


def test_a_row_is_subtracted_from_every_row() -> None:
    spec = Spec("o", (Field("cubes", (3, 2)), Field("tip", (2,))))
    flat = FlattenObservation(spec, Spec("a", (Field("push", (1,), low=-1.0, high=1.0),)),
                              {"cubes": 1.0, "tip": 1.0}, (Difference("cubes", "tip", 0.5),))  # fmt: skip
    cubes, tip = np.arange(6, dtype=np.float32).reshape(3, 2), np.float32([1.0, 2.0])
    expected = [*range(6), 1, 2, -2, -2, 2, 2, 6, 6]
    np.testing.assert_array_equal(flat.observe({"cubes": cubes, "tip": tip}), expected)
    batch = flat.observe({"cubes": np.stack([cubes, cubes + 1]), "tip": np.stack([tip, tip + 1])})
    np.testing.assert_array_equal(batch[:, 8:], [expected[8:]] * 2)
