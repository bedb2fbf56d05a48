from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from rlenv_data_browser.filters import FILTERS, condition, order
from rlenv_robot.data.condition import Condition
from rlenv_robot.data.episode_records import COLUMNS

COLUMNS_AND_FINDINGS = {**COLUMNS, "findings": "TEXT"}
RECORDS = [
    {
        "task_text": "lift the 100% cup",
        "tags": ",a,b c,",
        "success": 1,
        "seconds": 3.0,
        "began": "2026-11-21T03:00:00Z",
        "findings": "",
    },
    {"task_text": "wipe", "verdict": "discard", "source": "expert", "seconds": 9.0, "began": "2026-11-22T23:59:59Z"},
    {"note": "LIFT it's", "success": 0, "findings": "frozen gap", "tags": ",a b,"},
]


def passing(**query: str) -> list[int]:
    text = condition(query)
    assert text is not None
    names = list(COLUMNS_AND_FINDINGS)
    rows = [[record.get(name) for name in names] for record in RECORDS]
    passes = Condition(text, COLUMNS_AND_FINDINGS).passing(rows, names)
    return [number for number, fits in enumerate(passes) if fits]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({"text": "lift"}, [0, 2]), ({"text": "100%"}, [0]), ({"text": "1_0"}, []), ({"text": "it's"}, [2]),
        ({"tag": "a"}, [0]), ({"tag": "b c"}, [0]), ({"tag": "-"}, [1]), ({"source": "expert"}, [1]),
        ({"source": "-"}, [0, 2]), ({"success": "yes"}, [0]), ({"success": "no"}, [2]), ({"success": "unknown"}, [1]),
        ({"discarded": "no"}, [0, 2]), ({"discarded": "yes"}, [1]), ({"finding": "gap"}, [2]), ({"finding": "-"}, [0]),
        ({"longer": "3", "shorter": "8.5"}, [0]), ({"since": "2026-11-22"}, [1]), ({"until": "2026-11-22"}, [0, 1]),
        ({"until": "2026-11-21"}, [0]), ({"where": "seconds > 5 or success = 0", "text": "lift"}, [2]),
    ],
)  # fmt: skip
def test_each_filter_passes_what_it_says(query: dict[str, str], numbers: list[int]) -> None:
    assert passing(**query) == numbers


@given(
    st.sampled_from([name for name in FILTERS if name in ("text", "tag", "source", "finding")]), st.text(max_size=60)
)
def test_whatever_is_typed_is_a_text_and_no_sql(name: str, value: str) -> None:
    if value.strip() and "\0" not in value:
        assert set(passing(**{name: value})) <= {0, 1, 2}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60))
def test_a_text_is_found_in_a_note_that_has_it(value: str) -> None:
    if not value.strip():
        return
    text = condition({"text": value})
    assert text is not None
    names = ["task_text", "note", "run"]
    assert Condition(text, COLUMNS).passing([[None, f"so {value} it is", None]], names) == [True]


def test_values_that_are_none_are_refused() -> None:
    for query in ({"longer": "x"}, {"since": "yesterday"}, {"success": "maybe"}, {"until": "9999-12-31"}):
        with pytest.raises(SourceError):
            condition(query)
    assert condition({"text": "  ", "order": "steps"}) is None
    assert (order({"order": "steps", "direction": "desc"}), order({})) == ("steps desc", None)
