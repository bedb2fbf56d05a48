from __future__ import annotations

from recorder.formats.runs import uneven


def test_facts_that_only_some_episodes_have_are_told() -> None:
    whole = {"task": "pick", "seed": 1}
    assert uneven([]) == []
    assert uneven([whole, whole]) == []
    assert uneven([{}, {}]) == []
    assert uneven([whole, {"task": "pick"}, whole]) == ["1 of 3 episodes have no seed, as the others have"]
