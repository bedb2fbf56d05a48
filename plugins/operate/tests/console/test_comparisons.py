"""Two recorded episodes for a person to compare: their order, their answers, the rights to give one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from real.protocol.keys import Role
from recorder.log.preferences import add_judgement, read_judgements
from rlenv_language.chat.preferences import preferences
from rlenv_language.chat.transcripts import read_transcripts
from rlenv_language.text.dialogue import Dialogue
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.acts import ActLog
from rlenv_operate.console.comparisons import Comparisons, ShownPair, compare
from rlenv_operate.console.messages import Compare
from rlenv_robot.data.chats import TEXT

ANN = Visitor("ann", Role.OPERATE)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Record three answers to one prompt, worth 0, 1 and 10, and one to another prompt."""
    worth = {"no": 0.0, "well": 1.0, "gladly": 10.0}
    for number, (prompt, answer) in enumerate(
        (("may I?", "no"), ("may I?", "well"), ("may I?", "gladly"), ("hi", "no"))
    ):
        env: Any = rr.make(
            Dialogue([prompt], lambda messages: worth[messages[-1]["content"]]), record=tmp_path / str(number)
        )
        table = env.reset({"seed": number})
        env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": {TEXT: answer}})
        env.close()
    return tmp_path


def asked(comparisons: Comparisons | None, log: ActLog, shown: ShownPair | None = None, choice: str | None = None,
          visitor: Visitor = ANN) -> tuple[dict[str, Any], ShownPair | None]:  # fmt: skip
    question = Compare(t="compare", pair=0 if shown is None else shown.number, choice=choice)  # type: ignore[arg-type]
    text, shown = compare(comparisons, question, shown, visitor, log)
    return json.loads(text), shown


def answers_of(message: dict[str, Any]) -> set[str]:
    return {message[side]["messages"][1]["content"] for side in ("left", "right")}


def test_pairs_come_in_the_order_of_controversy_and_answers_come_back(runs: Path) -> None:
    comparisons, log = Comparisons(runs, seed=0), ActLog(None)
    message, shown = asked(comparisons, log)
    assert (message["kind"], message["pair"], message["problem"]) == ("chat", 1, "")
    assert answers_of(message) == {"no", "well"}, "those whose returns differ least; never of another prompt"
    better = next(side for side in ("left", "right") if message[side]["messages"][1]["content"] == "no")
    message, shown = asked(comparisons, log, shown, better)
    assert answers_of(message) == {"well", "gladly"}
    message, shown = asked(comparisons, log, shown, "skip")
    assert answers_of(message) == {"no", "gladly"}
    message, shown = asked(comparisons, log, shown, "equal")
    assert (message["pair"], shown) == (0, None), "no pair is left for this person"
    assert [(act.name, act.act, act.text, act.ok) for act in log.recent] == [
        ("ann", "prefer", better, True), ("ann", "prefer", "skip", True), ("ann", "prefer", "equal", True),
    ]  # fmt: skip
    chats = read_transcripts(rr.open_source(runs))
    pair = preferences(chats, 1, by="person")[0]
    assert (pair.chosen.messages[-1]["content"], pair.rejected.messages[-1]["content"]) == ("no", "well")
    assert pair.chosen.episode is not None
    assert Path(pair.chosen.episode.run).parent.parent == runs.resolve()
    drawn = rr.open_source(runs).sample_pairs(3, {"by": "person"})
    assert {str(np.asarray(one["chosen"]["steps_set"]["action"][TEXT]).ravel()[0]) for one in drawn} == {"no"}
    assert {one["margin"] for one in drawn} == {1.0}


def test_a_pair_on_which_people_disagree_is_asked_first_and_one_on_which_they_agree_last(runs: Path) -> None:
    chats = {one.messages[-1]["content"]: one.episode for one in read_transcripts(rr.open_source(runs))[:3]}
    no, well, gladly = (chats[word] for word in ("no", "well", "gladly"))
    assert no is not None and well is not None and gladly is not None  # noqa: PT018
    for who, choice in (("ben", "left"), ("eve", "right")):
        add_judgement(no, gladly, choice, who)  # type: ignore[arg-type]
    add_judgement(no, well, "left", "ben")
    comparisons, log, order, shown = Comparisons(runs, seed=1), ActLog(None), [], None
    for choice in (None, "skip", "skip"):
        message, shown = asked(comparisons, log, shown, choice)
        order.append(answers_of(message))
    assert order == [{"no", "gladly"}, {"well", "gladly"}, {"no", "well"}]
    add_judgement(no, gladly, "left", "kim")  # two of three
    pairs = rr.open_source(runs).sample_pairs(300, {"by": "person", "priority": "controversy"})
    assert sum(one["margin"] < 1.0 for one in pairs) > 280, "the agreed pair comes once in 668 draws"
    assert 80 < sum(one["margin"] < 1.0 for one in rr.open_source(runs).sample_pairs(300, {"by": "person"})) < 220


@pytest.mark.parametrize("role", [Role.MOVE, Role.WATCH, Role.STOP])
def test_other_roles_may_not_answer(runs: Path, role: Role) -> None:
    comparisons, log = Comparisons(runs), ActLog(None)
    _, shown = asked(comparisons, log)
    message, _ = asked(comparisons, log, shown, "left", Visitor("guest", role))
    assert "does not allow" in message["problem"]
    assert "left" not in message
    assert [(act.name, act.ok) for act in log.recent] == [("guest", False)]
    assert read_judgements(runs.glob("*/*")) == []


def test_an_answer_on_another_pair_and_a_console_without_runs_are_refused(runs: Path, tmp_path: Path) -> None:
    comparisons, log = Comparisons(runs), ActLog(None)
    _, shown = asked(comparisons, log)
    assert shown is not None
    stale = Compare(t="compare", pair=shown.number + 7, choice="left")
    text, kept = compare(comparisons, stale, shown, ANN, log)
    assert "look again" in json.loads(text)["problem"]
    assert (kept, json.loads(text)["pair"]) == (shown, shown.number)
    assert "--runs" in asked(None, log)[0]["problem"]
    assert read_judgements(runs.glob("*/*")) == []
