"""The mapping between our fields and a server's keys, in both directions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, IllegalAction, RobotError, Spec, SpecMismatch
from plugins.policy_servers.tests.fakes import ACTION, OBSERVATION, observation, own_settings
from rlenv_policy_servers.images import changed_image, restored_image
from rlenv_policy_servers.key_mapping import KeyMapping
from rlenv_policy_servers.part import ActionPart, ObservationPart
from rlenv_policy_servers.policy_file import PolicyFile


def mapping(sent: list[ObservationPart], received: list[ActionPart], **options: Any) -> KeyMapping:
    file = PolicyFile("openpi://127.0.0.1", 8, observation=sent, action=received, **options)
    return KeyMapping(file, OBSERVATION, ACTION)


STATE = ObservationPart(key="state", field="joint_position", elements=("pan", "lift"), unit="deg")
HAND = ObservationPart(
    key="state", field="joint_position", elements=("gripper",), ours=(-1.0, 1.0), theirs=(0.0, 100.0)
)
WHOLE = ActionPart(key="actions", field="joint_target")


def test_units_ranges_and_slices_join_to_one_vector() -> None:
    seen = observation()
    request = mapping([STATE, HAND], [WHOLE]).requests.request(seen)
    pan, lift, gripper = seen["joint_position"].tolist()
    np.testing.assert_allclose(request["state"], [np.degrees(pan), np.degrees(lift), 50 + 50 * gripper], rtol=1e-5)
    assert request["state"].dtype == np.float32


def test_actions_relative_to_the_observation_and_to_each_other() -> None:
    """openpi's DeltaActions counts from the observation's state; ``accumulate`` counts from the action before."""
    seen = observation()
    deltas = {"actions": np.full((4, 3), 0.1, np.float32)}
    relative = replace(WHOLE, relative_to="joint_position")
    chunk = mapping([STATE, HAND], [relative]).answers.chunk(deltas, seen, 8)["joint_target"]
    np.testing.assert_allclose(chunk, np.repeat(seen["joint_position"][None] + 0.1, 4, 0), rtol=1e-5)
    summed = mapping([STATE, HAND], [replace(relative, accumulate=True)]).answers.chunk(deltas, seen, 8)["joint_target"]
    np.testing.assert_allclose(summed, seen["joint_position"] + 0.1 * np.arange(1, 5)[:, None], rtol=1e-5)


def test_columns_may_be_picked_and_ignored_and_long_answers_are_cut() -> None:
    parts = [
        ActionPart(key="actions", field="joint_target", elements=("gripper",), columns=(3,), theirs=(0.0, 1.0)),
        ActionPart(key="actions", field="joint_target", elements=("lift", "pan"), columns=(0, 2), unit="deg"),
        ActionPart(key="actions", columns=(1,)),
    ]
    rows = np.tile(np.array([[90.0, 7.0, 45.0, 0.5]], np.float32), (20, 1))
    chunk = mapping([STATE, HAND], parts).answers.chunk({"actions": rows}, observation(), 8)["joint_target"]
    assert chunk.shape == (8, 3)
    np.testing.assert_allclose(chunk[0], [np.radians(45), np.radians(90), 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((2, 3, 1)), r"shape \(2, 3, 1\), expected \(1 or more actions, 3\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.zeros((2, 4)), r"shape \(2, 4\)"),
        (np.zeros((2, 3), complex), "complex128, expected an array of numbers"),
        ([[0.0] * 3], "is a list"),
        (np.full((2, 3), np.inf), "inf, expected a finite number"),
        (np.array([[0, 0, 0], [0, 0, 3]]), r"action 1.joint_target\[2\] \(gripper\) is 3 rad, allowed are -2 to 2"),
    ],
)
def test_an_answer_that_is_no_chunk_is_refused(rows: object, words: str) -> None:
    with pytest.raises((RobotError, IllegalAction), match=words):
        mapping([STATE, HAND], [WHOLE]).answers.chunk({"actions": rows}, observation(), 8)


def test_clipping_is_asked_for_and_counted_and_never_hides_nan() -> None:
    answers = mapping([STATE, HAND], [replace(WHOLE, outside="clip")]).answers
    chunk = answers.chunk({"actions": np.array([[0, 0, 2.1], [0, -9, 0]])}, observation(), 8)["joint_target"]
    assert chunk[:, 1:].tolist() == [[0, 2], [-2, 0]]
    assert answers.clipped == 2
    with pytest.raises(IllegalAction, match="nan"):
        answers.chunk({"actions": np.array([[0, 0, np.nan]])}, observation(), 8)


def test_every_difference_is_named_at_once() -> None:
    sent = [
        ObservationPart(key="a", field="joint_positions"),
        ObservationPart(key="b", field="joint_position", elements=("wrist",)),
        ObservationPart(key="c", field="overhead_image", unit="deg"),
        ObservationPart(key="d", field="instruction"),
        ObservationPart(key="e", field="joint_position", size=(3, 3)),
        ObservationPart(key="f", field="joint_position", single=True),
    ]
    received = [ActionPart(key="actions", field="goal"), ActionPart(key="x", field="joint_target", accumulate=True)]
    with pytest.raises(SpecMismatch) as caught:
        mapping(sent, received, prompt_field="joint_position")
    assert [line.partition(":")[0] for line in caught.value.difference] == [
        "observation[0] (a)", "observation[1] (b)", "observation[2] (c)", "observation[3] (d)", "observation[4] (e)",
        "observation[5] (f)", "action[0] (actions)", "action[1] (x)", "prompt_field",
    ]  # fmt: skip


def test_elements_and_columns_that_are_missing_or_double_are_named() -> None:
    received = [
        ActionPart(key="actions", field="joint_target", elements=("pan", "pan"), columns=(0, 2)),
        ActionPart(key="actions", field="joint_target", elements=("lift",), columns=(2,)),
    ]
    with pytest.raises(SpecMismatch) as caught:
        mapping([STATE, HAND], received)
    text = "\n".join(caught.value.difference)
    assert "column 1 of actions has 0 parts" in text
    assert "column 2 of actions has 2 parts" in text
    assert "joint_target[pan] has 2 parts" in text
    assert "joint_target[gripper] has 0 parts" in text


def test_degrees_need_a_field_in_radians() -> None:
    spec = Spec("o", (Field("speed", (1,), "float32", -1, 1, "m/s", "speed"),))
    part = ObservationPart(key="s", field="speed", unit="deg")
    file = PolicyFile("openpi://h", 1, observation=[part], action=[WHOLE])
    with pytest.raises(SpecMismatch, match="unit is \"deg\", and speed is in 'm/s', not rad"):
        KeyMapping(file, spec, ACTION)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), relative=st.sampled_from([(), ("joint_position",)]), summed=st.booleans())
def test_a_server_undoes_what_a_client_does(seed: int, relative: tuple[str, ...], summed: bool) -> None:
    rng = np.random.default_rng(seed)
    seen = {**OBSERVATION.sample(rng), "instruction": np.array("", "<U60")}
    part = replace(WHOLE, relative_to="".join(relative), accumulate=summed and bool(relative), unit="deg")
    image = ObservationPart(key="image", field="overhead_image", layout="chw", dtype="float32")
    both = mapping([STATE, HAND, image], [part])
    restored = both.requests.observed(both.requests.request(seen))
    np.testing.assert_allclose(restored["joint_position"], seen["joint_position"], atol=1e-5)
    np.testing.assert_array_equal(restored["overhead_image"], seen["overhead_image"])
    chunk = {"joint_target": rng.uniform(-2, 2, (5, 3)).astype(np.float32)}
    again = both.answers.chunk(both.answers.answer(chunk, seen), seen, 8)
    np.testing.assert_allclose(again["joint_target"], chunk["joint_target"], atol=1e-5)


def test_a_value_at_the_bound_survives_the_rounding_of_degrees() -> None:
    seen = {**observation(), "joint_position": np.array([2.0, -2.0, 2.0], np.float32)}
    both = mapping([replace(STATE, elements=())], [replace(WHOLE, unit="deg")])
    restored = both.requests.observed({"state": both.requests.request(seen)["state"]})
    assert restored["joint_position"].tolist() == [2, -2, 2]
    wrong = both.requests.request(seen)["state"] * 1.001
    with pytest.raises(IllegalAction, match="allowed are -2 to 2 rad"):
        both.requests.observed({"state": wrong})


def test_a_server_needs_every_field() -> None:
    own = own_settings("openpi")
    with pytest.raises(SpecMismatch, match=r"joint_position is in no key.*sent as \[224, 224\] pixels"):
        KeyMapping(
            replace(own, observation=[ObservationPart(key="i", field="overhead_image", size=(224, 224))]),
            OBSERVATION, ACTION, serving=True,
        )  # fmt: skip


@pytest.mark.parametrize("layout", ["hwc", "chw"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_change_their_axes_and_type(layout: str, dtype: str) -> None:
    image = observation()["overhead_image"]
    changed = changed_image(image, (), True, layout, dtype)
    assert changed.shape == ((24, 32, 3) if layout == "hwc" else (3, 24, 32))
    assert changed.dtype == dtype
    np.testing.assert_array_equal(restored_image(changed, layout, dtype), image)


def test_padding_keeps_the_proportions() -> None:
    image = np.full((48, 64, 3), 200, np.uint8)
    padded = changed_image(image, (64, 64), True, "hwc", "")
    assert (padded[:8] == 0).all()
    assert (padded[-8:] == 0).all()
    assert (padded[8:-8] == 200).all()
    assert (changed_image(image, (64, 64), False, "hwc", "") == 200).all()
