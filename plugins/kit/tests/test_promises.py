"""The kit holds an environment to the sentences of its description, and follows messages to their receivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from plugins.kit.tests.planting import Planted, planters
from plugins.kit.tests.promising import SINGERS, Booked, Choir, Solo
from rlenv_kit import check_environment
from rlenv_kit.promises import promise_of
from rlenv_robot.world import NOTHING

pytestmark = pytest.mark.requirement("R4.3")

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- what sentences promise ----------------------------------------------------------------------------------


replaces(Booked, "ends", {
    "LimitIsLate -> reset options": lambda self: (int(self.height <= 0), int(self.height > 0 and
                                                                             self.frame_no > self.limit)),
    "LimitIsEarly -> reset options": lambda self: (int(self.height <= 0), int(self.height > 0 and
                                                                              self.frame_no >= self.limit - 1)),
    "LimitTerminates -> reset options": lambda self: (int(self.height <= 0 or self.frame_no >= self.limit), 0),
})  # fmt: skip


@fault("reset options", "An episode without the option has 41 steps, and the description says 40.")
class OtherDefault(Booked):
    def reset(self, options=NOTHING):
        return super().reset({"limit": 41, **options} if isinstance(options, Mapping) else options)


@fault("reset options", "NaN is no number from 5 to 30.")
class NotANumber(Booked):
    def check(self, options):
        height = options.get("height", 5) if isinstance(options, Mapping) else 5
        super().check({**options, "height": 5} if height != height else options)

    def reset(self, options=NOTHING):
        table = super().reset(options)
        if np.isnan(self.height):
            self.height, table["observation"]["height"] = 5.0, np.array(5.0)
        return table


@fault("reset options", "A limit of 5.5 is taken for 5.")
class FractionOfAStep(Booked):
    def check(self, options):
        limit = options.get("limit", 5) if isinstance(options, Mapping) else 5
        super().check({**options, "limit": int(limit)} if isinstance(limit, float) and abs(limit) < 99 else options)


@fault("reset options", "A height above 25 is brought down to it.")
class LowSky(Booked):
    def reset(self, options=NOTHING):
        super().reset(options)
        self.height = min(self.height, 25.0) if "height" in options else self.height
        return self.table()


changes(Booked, "called", {"LastCallStays -> last frame": lambda self, right: f"go {self.frame_no}"})
changes(Booked, "extra", {
    "NoReason -> last frame": lambda self, right: {key: right[key] for key in right if key != "truncated_by"},
})  # fmt: skip


# -- what a step takes ---------------------------------------------------------------------------------------


@fault("step extra", "A gust out of its range is brought into it.")
class GustIsBounded(Booked):
    def step(self, action, extra_info=NOTHING):
        gust = extra_info.get("gust") if isinstance(extra_info, Mapping) else None
        bounded = isinstance(gust, int | float) and not isinstance(gust, bool)
        return super().step(action, {**extra_info, "gust": min(max(gust, 0), 1)} if bounded else extra_info)


@fault("step extra", "A gust blows on in later steps.")
class GustStays(Booked):
    kept = 0.0

    def begin(self):
        super().begin()
        self.kept = 0.0

    def gust_of(self, extra_info):
        self.kept = float(extra_info.get("gust", self.kept))
        return self.kept


@fault("step extra", "A refused gust draws from the generator.")
class RefusedGustDraws(Booked):
    def wrong_extra(self, extra_info):
        wrong = super().wrong_extra(extra_info)
        if wrong is not None:
            self.rng.random()
        return wrong


# -- resets, ends, ownership ---------------------------------------------------------------------------------


@fault("refused reset", "The height is drawn anew before the limit is looked at.")
class RefusedResetMoves(Booked):
    def check(self, options):
        if isinstance(options, Mapping) and "limit" in options:
            self.height = float(self.rng.uniform(20, 30))
        super().check(options)


@fault("refused reset", "The limit holds from now on, though another option is wrong.")
class RefusedResetLimits(Booked):
    def check(self, options):
        limit = options.get("limit") if isinstance(options, Mapping) else None
        if isinstance(limit, int) and 5 <= limit <= 60:
            self.limit = limit
        super().check(options)


@fault("last answer", "At the time limit the table shows a height and a speed drawn anew.")
class LastIsNew(Booked):
    def reset(self, options=NOTHING):
        # The episode of seed 0 ends by a landing.
        short = isinstance(options, Mapping) and options.get("seed")
        return super().reset({"limit": 10, **options} if short else options)

    def ends(self):
        ended = super().ends()
        if ended[1]:
            self.height, self.velocity = float(self.rng.uniform(20, 30)), self.rng.uniform(-1, 1, 2)
        return ended


@fault("after the end", "The last frame already shows where the next episode begins.")
class LastIsNextFirst(Booked):
    following = None

    def begin(self):
        super().begin()
        if self.following is not None:
            self.height, self.velocity, self.fuel = self.following
        self.following = None

    def seed(self, seed):
        super().seed(seed)
        self.following = self.following if seed is None else None

    def called(self):
        return "go"

    def ends(self):
        ended = super().ends()
        if any(ended):
            self.velocity, self.fuel = self.rng.uniform(-1, 1, 2), 60
            self.following = self.height, self.velocity, self.fuel
        return ended


@fault("actions", "The table holds the caller's own thrust.")
class AppliedIsCallers(Booked):
    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        if "applied" in table["extra_info"] and "error" not in table["extra_info"]:
            table["extra_info"]["applied"]["thrust"] = action["action"]["thrust"]
        return table, reward


@fault("after the end", "After three silent frames steps are carried out.")
class SilenceGoesOn(Choir):
    def step(self, action, extra_info=NOTHING):
        if self.phase == "ended" and self.silent >= 3:
            self.phase = "running"
        return super().step(action, extra_info)


# -- messages and masks --------------------------------------------------------------------------------------


def _texts(change: Callable[[str], str]) -> Callable[[Any, Any], Any]:
    return lambda self, sent: {to: {by: change(text) for by, text in box.items()} for to, box in sent.items()}


changes(Choir, "messages", {
    "MessagesAreCut -> messages": _texts(lambda text: text[:9]),
    "MessagesAreLowered -> messages": _texts(str.lower),
    "MessagesInAscii -> messages": _texts(lambda text: text.encode("ascii", "ignore").decode()),
    "AltoSpeaksForBass -> messages": lambda self, sent: {
        to: {{"alto": "bass", "bass": "alto"}.get(by, by): text for by, text in box.items()} if to == "tenor" else box
        for to, box in sent.items()},
})  # fmt: skip
replaces(Choir, "reaches", {
    "FirstReceiverIsAll -> messages": lambda self, to, place: to <= 0 or to == place,
    "LastReceiverIsNobody -> messages": lambda self, to, place: to == -1 or (to == place and to < 2),
    "NextReceiver -> messages": lambda self, to, place: to == -1 or (to + 1) % 3 == place,
    "AllHear -> messages": lambda self, to, place: True,
})  # fmt: skip


@fault("messages", "A message arrives with the next step.")
class MessagesAreLate(Choir):
    def begin(self):
        super().begin()
        self.late = {a: {} for a in SINGERS}

    def messages(self, values):
        late, self.late = self.late, super().messages(values)
        return late


@fault("messages", "A message stays until the next one of its sender.")
class MessagesStay(Choir):
    def begin(self):
        super().begin()
        self.boxes = {a: {} for a in SINGERS}

    def messages(self, values):
        for receiver, box in super().messages(values).items():
            self.boxes[receiver].update(box)
        return {receiver: dict(box) for receiver, box in self.boxes.items()}


@fault("frames", "The messages of an action without the breath for it are in the table of its refusal.")
class RefusedMessages(Choir):
    def refusal(self, problem):
        table, reward = super().refusal(problem)
        if problem["code"] == "breath":
            table["extra_info"]["messages"] = {"alto": {"bass": "what was refused"}, "bass": {}, "tenor": {}}
        return table, reward


@fault("masks", "The mask is that of the frame before.")
class MaskIsOld(Choir):
    def begin(self):
        super().begin()
        self.old = super().masks()

    def advance(self, values):
        self.old = super().masks()
        super().advance(values)

    def masks(self):
        return {name: mask.copy() for name, mask in self.old.items()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen_by_its_check(name: str) -> None:
    planted = FAULTS[name]
    (key,) = planted.keys
    (check,) = check_environment(lambda: planted.made(), only=key).checks
    assert (check.key, check.passed) == (key, False)


@pytest.mark.parametrize("made", [Booked, Choir, Solo])
def test_the_correct_one_is_not_accused(made: Callable[[], Any]) -> None:
    report = check_environment(lambda: made())
    report.raise_if_failed()
    untried = {check.key for check in report.checks if check.passed is None}
    tried = {"reset options", "step extra", "last answer"} if made is Booked else {"messages", "masks"}
    assert not untried & (tried if made is not Solo else {"messages"})


@pytest.mark.parametrize(
    ("sentence", "low", "high", "default"),
    [
        ("number from 0 to 2.5: at the start; by default 1.5 m", 0, 2.5, 1.5),
        ("from -1 to 1, by default 0", -1, 1, 0),
        ("rows, by default drawn", None, None, None),
        ("by default 5 m and some noise", None, None, None),
    ],
)
def test_a_sentence_is_read(sentence: str, low: float | None, high: float | None, default: float | None) -> None:
    promise = promise_of("option", sentence)
    read = (promise.low, promise.high, promise.default)
    assert [None if np.isnan(number) else number for number in read] == [low, high, default]
