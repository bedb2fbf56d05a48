"""The pages about a robot's rows say where each byte of a real row lies."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, RobotSpec, RobotState, Spec
from hal.field import DTYPES
from hal.robots.so101 import SO101
from real import Server
from real.protocol.rows import RobotStateCodec
from rlenv_kit.wire_page import FORMATS, row_elements, wire_page
from rlenv_robot.cli import main as cli
from tests.fakes import Integrator

PAGE = Path(__file__).parents[3] / "docs" / "wire.md"
STRUCT = {"float64": "d", "float32": "f", "int64": "q", "int32": "i", "int16": "h", "int8": "b"}
STRUCT |= {f"u{name}": letter.upper() for name, letter in STRUCT.items() if name.startswith("int")}


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    kinds = draw(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 3), max_size=2)), max_size=6))
    return Spec("mixed", tuple(Field(f"field_{n}", tuple(shape), dtype) for n, (dtype, shape) in enumerate(kinds)))


@given(specs(), st.integers(0, 2**32 - 1))
def test_each_element_is_where_the_page_says(spec: Spec, seed: int) -> None:
    """By Python's own struct, which knows nothing of our rows."""
    values = spec.sample(np.random.default_rng(seed))
    row, end = spec.pack(values), 0
    for offset, size, field, index in row_elements(spec):
        assert offset == end, "no gap"
        assert index is not None
        (value,) = struct.unpack_from("<" + STRUCT[field.dtype], row, offset)
        assert value == values[field.name].ravel()[index]
        end = offset + size
    assert end == len(row)


BIG = RobotSpec(
    "big",
    Spec("big_sensors", (Field("flag", (), "uint8"), Field("image_row", (100, 3), "float32", meaning="a | b\nc"))),
    Spec(
        "big_commands", (Field("gear", (2,), "int16", (1, 2), (3, 4)), Field("goal", (2, 2), "float64", -1, 1, "rad"))
    ),
    10.0,
)


def test_the_schema_has_offsets_types_and_bounds() -> None:
    schema = json.loads(wire_page(BIG, "json"))
    command, sensors, applied = (schema["properties"][name] for name in ("command", "sensors", "applied"))
    assert (command["x-bytes"], sensors["x-bytes"]) == (36, 1201)
    assert {name: field["x-offset"] for name, field in command["properties"].items()} == {"gear": 32, "goal": 0}
    assert applied["properties"]["goal"]["x-offset"] == 1201, "behind the sensors, in the same frame"
    assert command["properties"]["gear"]["prefixItems"] == [
        {"type": "integer", "minimum": 1, "maximum": 3}, {"type": "integer", "minimum": 2, "maximum": 4},
    ]  # fmt: skip
    goal = command["properties"]["goal"]
    assert (goal["minItems"], goal["items"]["maxItems"]) == (2, 2)
    assert goal["items"]["items"] == {"type": "number", "minimum": -1.0, "maximum": 1.0}
    assert schema["x-digest"] == BIG.digest


def test_the_tables_of_both_pages_have_the_same_cells() -> None:
    cells = re.findall(r"<td>(.*?)</td>", wire_page(BIG, "html"), re.DOTALL)
    lines = [line for line in wire_page(BIG).splitlines() if re.match(r"\| \d", line)]
    assert len(cells) == 7 * len(lines) == 7 * (6 + 2 + 6)
    assert (
        "| 0 to 1199 | image_row | all 300, C order of [100, 3] | float32 | 1 | any finite number | a \\| b c |"
        in lines
    )
    assert "| 1233 to 1234 | gear | [0] | int16 | 1 | 1 to 3 |  |" in lines


def test_a_state_is_the_sensors_row_and_then_the_applied_row() -> None:
    rng = np.random.default_rng(1)

    state = RobotState(BIG.sensors.sample(rng), BIG.commands.sample(rng), 5)
    _, (frame,) = RobotStateCodec(BIG).encode(state)
    places: dict[str, Any] = json.loads(wire_page(BIG, "json"))["properties"]["applied"]["properties"]
    assert struct.unpack_from("<4d", frame, places["goal"]["x-offset"]) == tuple(state.applied["goal"].ravel())
    assert struct.unpack_from("<2h", frame, places["gear"]["x-offset"]) == tuple(state.applied["gear"])


def test_the_verb_describes_a_robot_by_name_and_at_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rlenv_kit")
    assert cli.main(["protocol", "so101"]) == 0
    assert capsys.readouterr().out == wire_page(SO101)
    robot = Integrator()
    with Server(robot, lockstep=True) as server:
        for kind in FORMATS:
            assert cli.main(["protocol", server.address, "--format", kind]) == 0
            assert capsys.readouterr().out == wire_page(robot.spec, kind)
    with pytest.raises(ValueError, match="markdown, html, json"):
        wire_page(BIG, "pdf")


def test_the_page_of_the_wire_has_the_rows_of_the_arm() -> None:
    generated = wire_page(SO101).split("24 bytes.\n\n")[1].split("\n\n")[0]
    assert f"<!-- rows: begin -->\n{generated}\n<!-- rows: end -->" in PAGE.read_text(encoding="utf-8")


def test_the_digest_is_made_as_the_page_says() -> None:
    """In the words of docs/wire.md, from the plain data that WELCOME carries."""

    plain = BIG.to_dict()

    def digest(spec: dict[str, Any]) -> str:
        fields = [{key: value for key, value in field.items() if key != "meaning"} for field in spec["fields"]]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    whole = json.dumps([plain["name"], digest(plain["sensors"]), digest(plain["commands"]), plain["rate_hz"]])
    assert hashlib.sha256(whole.encode()).hexdigest() == BIG.digest
