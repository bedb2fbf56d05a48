"""Faults of refusing illegal actions: each is the `Lander` with one of them."""

from __future__ import annotations

import numpy as np

from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, _, replaces = planters(FAULTS)


# -- illegal actions -------------------------------------------------------------------------------------


class Lenient(Lander):
    """Replace some values before the check."""

    def broken_rule(self, action):
        problem = super().broken_rule(action)
        return None if problem is not None and self.forgives(problem, action) else problem

    def forgives(self, problem, action):
        return False

    def values(self, action):
        plain = {"thrust": np.zeros(2, np.float32), "legs": np.zeros((), np.uint8)}
        for name in plain:
            try:
                plain[name] = np.clip(
                    np.nan_to_num(np.resize(np.asarray(action[name], float), plain[name].shape)), -1, 1
                )
            except (KeyError, TypeError, ValueError):
                continue
        return plain


replaces(Lenient, "forgives", {
    # The second element of the thrust is clipped instead of refused.
    "SecondElement -> refusals":
        lambda self, problem, action: problem["code"] == "range" and list(problem["index"]) == [1],
    # Values below the range are clipped.
    "BelowOnly -> refusals": lambda self, problem, action: problem["code"] == "range" and np.min(action["thrust"]) < -1,
    # NaN is taken for 0.
    "NanIsZero -> refusals":
        lambda self, problem, action: problem["code"] == "not_finite" and bool(np.isnan(action["thrust"]).any()),
    # Any number above 1 extends the legs.
    "BigLegs -> refusals":
        lambda self, problem, action: problem["code"] == "range" and problem["field"].endswith("legs"),
    # A missing field is taken for 0.
    "MissingIsZero -> refusals": lambda self, problem, action: problem["code"] == "missing" and hasattr(action, "keys"),
    # An unknown field is ignored.
    "UnknownIgnored -> refusals": lambda self, problem, action: problem["code"] == "unknown",
    # A single number is broadcast to both thrusters.
    "Broadcast -> refusals":
        lambda self, problem, action: problem["code"] == "shape" and np.ndim(action["thrust"]) == 0,
    # Values out of range are refused in the first 8 frames only.
    "LenientLater -> refusals late": lambda self, problem, action: problem["code"] == "range" and self.frame_no >= 8,
    # Half a leg is rounded.
    "HalfLegs -> refusals": lambda self, problem, action: (problem["field"].endswith("legs") and problem["code"] ==
        "dtype" and np.ndim(action["legs"]) == 0),
})  # fmt: skip


@fault("refusals", "An action for the frame before is executed.")
class OldFrames(Lander):
    def problem(self, table):
        problem = super().problem(table)
        late = problem and problem["code"] == "frame_no" and table["frame_no"] == self.frame_no - 1
        return self.broken_rule(table["action"]) if late else problem


@fault("refusals", "An action for another environment is executed.")
class AnybodysAction(Lander):
    def problem(self, table):
        problem = super().problem(table)
        return self.broken_rule(table["action"]) if problem and problem["code"] == "env_id" else problem


@fault("refusals", "An illegal action raises.")
class RaisesOnIllegal(Lander):
    def refusal(self, problem):
        raise ValueError(problem["message"])


replaces(Lander, "refusal", {
    # An illegal action is refused without an error.
    "SilentRefusal -> refusals": lambda self, problem: (self.table(), self.reward_table(0.0)),
    # The error of a refused action is empty.
    "ErrorWithoutReason -> refusals": lambda self, problem: Lander.refusal(self, {}),
})  # fmt: skip


@fault("refusals", "An illegal action costs fuel.")
class RefusalCosts(Lander):
    def refusal(self, problem):
        self.fuel = max(self.fuel - 1, 0)
        return super().refusal(problem)


@fault("refusals", "A refused action has the reward -1.")
class RefusalPunishes(Lander):
    def refusal(self, problem):
        table, _ = super().refusal(problem)
        return table, self.reward_table(-1.0)


@fault("refusals change nothing", "A refused action draws a gust, so that the rest of the episode differs.")
class RefusalDraws(Lander):
    def refusal(self, problem):
        self.gust()
        return super().refusal(problem)


@fault("refusals", "A refused action advances frame_no.")
class RefusalCounts(Lander):
    def refusal(self, problem):
        self.frame_no += 1
        return super().refusal(problem)


@fault("refusals", "A refused action ends the episode.")
class RefusalEnds(Lander):
    def refusal(self, problem):
        self.ended, self.phase = (0, 1), "ended"
        return super().refusal(problem)


@fault("refusals late", "Refused actions count against the time limit, in secret.")
class RefusalTicks(Lander):
    ticks = 0

    def begin(self):
        super().begin()
        self.ticks = 0

    def refusal(self, problem):
        self.ticks += 1
        return super().refusal(problem)

    def ends(self):
        landed, _ = super().ends()
        return landed, int(not landed and self.frame_no + self.ticks >= 30)


@fault("error passes", "The error of a refused action stays in the next tables.")
class StickyError(Lander):
    kept = None

    def refusal(self, problem):
        self.kept = problem
        return super().refusal(problem)

    def extra(self):
        return super().extra() | ({} if self.kept is None else {"error": self.kept})


@fault("extremes", "The highest legal thrust is refused.")
class HighBorderRefused(Lander):
    def broken_rule(self, action):
        problem = super().broken_rule(action)
        if problem is None and np.max(action["thrust"]) >= 1:
            return self.error("range", "thrust", "above 1")
        return problem


@fault("frames", "The legs can't be extended once the fuel is below 40.")
class LegsRefused(Lander):
    def broken_rule(self, action):
        problem = super().broken_rule(action)
        if problem is None and action["legs"] == 1 and self.fuel < 40:
            return self.error("range", "legs", "above 0")
        return problem
