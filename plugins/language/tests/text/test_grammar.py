"""The grammar of actions as text: any text is an action or a refusal, and legal actions come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, IllegalAction, Spec
from hal.field import DTYPES
from rlenv_language.text.grammar import FORMAT, Grammar
from rlenv_robot.tasks.text_hints import TextCommand

pytestmark = pytest.mark.requirement("R1.2")

ARM = Spec(
    "arm",
    (
        Field("skill", (), "int32", 0, 2),
        Field("object", (), "int32", 0, 2),
        Field("position", (3,), "float32", (0.1, -0.2, 0.0), (0.4, 0.2, 0.3), "m", "where to", ("x", "y", "z")),
        Field("speed", (), "float64", 0.5, 2.0, "m/s"),
    ),
)
COMMANDS = (
    TextCommand("move_to", ("position", "speed"), {"skill": 0}, "move the tips"),
    TextCommand("grasp", ("object",), {"skill": 1}),
    TextCommand("Release", (), {"skill": 2}),
)
WORDS = {"object": ("red", "green", "blue")}


def grammar(**settings: Any) -> Grammar:
    return Grammar(ARM, COMMANDS, WORDS, **settings)


def refusal(text: str, of: Grammar | None = None) -> Any:
    with pytest.raises(IllegalAction) as refused:
        (of or grammar()).parse(text)
    return refused.value.violation


def test_a_command_is_read_by_name_or_by_order() -> None:
    for content in ("move_to(position=[0.2, -0.1, 0.05], speed=1)", "MOVE_TO([0.2,-0.1,.05], 1.0)",
                    " move_to ( speed = 1e0 , position = [ 0.2 , -0.1 , 5e-2 ] ) "):  # fmt: skip
        parsed = grammar().parse(f"so: <think>far</think> <answer>{content}</answer><|im_end|>")
        assert parsed.command == "move_to"
        assert parsed.thought == "far"
        assert parsed.action["position"].tolist() == pytest.approx([0.2, -0.1, 0.05])
        assert parsed.action["position"].dtype == np.float32
        assert (int(parsed.action["skill"]), int(parsed.action["object"]), float(parsed.action["speed"])) == (0, 0, 1.0)


def test_words_stand_for_whole_numbers_and_bare_names_for_commands_without_arguments() -> None:
    assert int(grammar().parse("<answer>grasp(Blue)</answer>").action["object"]) == 2
    assert int(grammar().parse("<answer>grasp(object=1)</answer>").action["object"]) == 1
    released = grammar().parse("<answer>release</answer>").action
    assert int(released["skill"]) == 2
    assert float(released["speed"]) == 0.5, "next to zero in its range"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("fly", "grasp"), ("grasp", "object"), ("grasp(pink)", "red"), ("grasp(red, blue)", "takes 1"),
        ("grasp(thing=red)", "no argument"), ("grasp(red", "bracket"), ("move_to([1, 2], 1)", "2 numbers"),
        ("move_to([0.2, 0, 0.1]], 1)", "brackets"),
        ("move_to(position=[0.2, 0, 0.1], position=[0.2, 0, 0.1])", "twice"),
        ("move_to(0.2, 1)", "brackets"), ("", "no command"), ("move_to([0.2, 0, nan], 1)", "nan"),
    ],
)  # fmt: skip
def test_texts_outside_the_grammar_are_refused_with_what_is_allowed(content: str, word: str) -> None:
    violation = refusal(f"<answer>{content}</answer>")
    assert violation.code == FORMAT
    assert word in violation.message


def test_values_outside_the_spec_are_refused_by_the_spec() -> None:
    assert refusal("<answer>move_to([0.2, 0, 0.9], 1)</answer>").code == "range"
    assert refusal("<answer>move_to([0.2, 0, 1e999], 1)</answer>").code == "not_finite"
    assert refusal("<answer>grasp(1.5)</answer>").code == "dtype"
    assert refusal("<answer>grasp(7)</answer>").code == "range"


def test_no_tags_and_long_texts_are_refused() -> None:
    assert refusal("grasp(red)").code == FORMAT
    assert refusal("<answer>grasp(red)").code == FORMAT
    assert "characters" in refusal("<answer>release</answer>" + " " * 5000).message


def test_the_last_pair_of_tags_after_the_thought_counts() -> None:
    assert grammar().parse("<answer>grasp(red)</answer> no: <answer>release</answer>").command == "Release"
    thinking = "<think>perhaps <answer>grasp(red)</answer>? No.</think> <answer>release</answer><answer>grasp("
    parsed = grammar().parse(thinking)
    assert (parsed.command, parsed.thought) == ("Release", "perhaps <answer>grasp(red)</answer>? No.")
    assert refusal("<think><answer>release</answer></think> well").code == FORMAT


def test_a_pattern_stands_in_place_of_the_tags() -> None:
    strict = grammar(pattern=r"<think>(.*?)</think>\s*<answer>(.*?)</answer>")
    assert "fits" in refusal("<answer>release</answer>", strict).message
    parsed = strict.parse("<think>so</think>\n<answer>grasp(red)</answer>")
    assert (parsed.command, parsed.thought) == ("grasp", "so")
    assert grammar(pattern="^(.*)$").parse("release<|im_end|>").command == "Release"
    for made in (strict, grammar(pattern="^(.*)$")):
        made.parse(made.sample(np.random.default_rng(0)))


@pytest.mark.parametrize("text", ["x" * 9000 + "{}", "{}" + "x" * 9000, "x" * 9000 + "{}" + "x" * 9000,
                                  "<think>" + "x" * 9000 + "</think>{}"])  # fmt: skip
@pytest.mark.parametrize("pattern", ["", r"<answer>(.*?)</answer>"])
def test_a_shortened_text_has_the_same_command(text: str, pattern: str) -> None:
    made = grammar(pattern=pattern)
    short = made.shorten(text.format("<answer>grasp(green)</answer>"))
    assert len(short) <= made.longest
    assert int(made.parse(short).action["object"]) == 1
    assert made.shorten("<answer>release</answer>") == "<answer>release</answer>"


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_is_an_action_or_a_refusal(text: str) -> None:
    _action_or_refusal(text)


_PIECES = st.sampled_from(
    ["<answer>", "</answer>", "<think>", "</think>", "grasp", "move_to", "release", "(", ")", "[", "]", ",", "=",
     "object", "position", "speed", "red", "1", "-0.1", "1e5", "9" * 60, "1e999", " ", "\n", ".",
     "-", "<|im_end|>", "٣", "\ud800"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=30))
@settings(max_examples=500, deadline=None)
def test_any_mix_of_the_grammar_s_pieces_is_an_action_or_a_refusal(pieces: list[str]) -> None:
    _action_or_refusal("".join(pieces))
    _action_or_refusal(f"<answer>{''.join(pieces)}</answer>")


def _action_or_refusal(text: str) -> None:
    try:
        parsed = grammar().parse(text)
    except IllegalAction:
        pass
    else:
        ARM.validate(parsed.action)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Specs of up to four fields of any dtype and shape, with bounds or without."""
    fields = []
    for number in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.sampled_from([(), (1,), (3,), (2, 3), (40,)]))
        bounds = draw(st.sampled_from([{}, {"low": 0, "high": 100}, {"low": 3, "high": 7}]))
        fields.append(Field(f"field{number}", shape, dtype, **bounds))
    return Spec("drawn", tuple(fields))


@given(specs(), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_legal_actions_of_any_spec_come_back_exactly(spec: Spec, seed: int) -> None:
    raw = Grammar(spec, longest=1 << 20)
    action = spec.sample(np.random.default_rng(seed))
    back = raw.parse(raw.write(action)).action
    assert list(back) == list(spec.names)
    for name, value in action.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == value.dtype


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_commands_come_back_and_random_texts_are_legal(seed: int) -> None:
    made = grammar()
    text = made.sample(np.random.default_rng(seed))
    parsed = made.parse(text)
    again = made.parse(made.write(parsed.action))
    assert again.command == parsed.command
    for name, value in parsed.action.items():
        np.testing.assert_array_equal(again.action[name], value)


def test_an_action_that_no_command_gives_is_not_written() -> None:
    action = {"skill": 1, "object": 1, "position": [0.2, 0.0, 0.1], "speed": 1.0}
    with pytest.raises(ValueError, match="no command"):
        grammar().write(action)


def test_the_instructions_name_every_command_with_its_ranges() -> None:
    text = grammar().instructions
    assert "move_to(position=[x, y, z], speed=number): move the tips" in text
    assert "grasp(object=red|green|blue)" in text
    assert "0.1 to 0.4, -0.2 to 0.2, 0 to 0.3 m" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"commands": (TextCommand("a b"),)}, {"commands": (TextCommand("a", ("nowhere",)),)}, {"tag": "<x>"},
        {"commands": (TextCommand("go"), TextCommand("GO"))}, {"names": {"object": ("red", "Red", "blue")}},
        {"names": {"object": ("red",)}}, {"names": {"speed": ("slow", "fast")}}, {"pattern": "("}, {"pattern": "x"},
    ],
)  # fmt: skip
def test_a_grammar_that_can_t_be_read_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Grammar(ARM, **wrong)
