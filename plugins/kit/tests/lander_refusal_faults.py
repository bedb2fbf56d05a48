"""Faults of refusing illegal actions: each class is the `Lander` with the one fault that its docstring names."""

from __future__ import annotations

import numpy as np

from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import entry

FAULTS: dict[str, type[Lander]] = {}
fault = entry(FAULTS)


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


@fault
class SecondElement(Lenient):
    """The second element of the thrust is clipped instead of refused."""

    def forgives(self, problem, action):
        return problem["code"] == "range" and list(problem["index"]) == [1]


@fault
class BelowOnly(Lenient):
    """Values below the range are clipped."""

    def forgives(self, problem, action):
        return problem["code"] == "range" and np.min(action["thrust"]) < -1


@fault
class NanIsZero(Lenient):
    """NaN is taken for 0."""

    def forgives(self, problem, action):
        return problem["code"] == "not_finite" and bool(np.isnan(action["thrust"]).any())


@fault
class BigLegs(Lenient):
    """Any number above 1 extends the legs."""

    def forgives(self, problem, action):
        return problem["code"] == "range" and problem["field"].endswith("legs")


@fault
class MissingIsZero(Lenient):
    """A missing field is taken for 0."""

    def forgives(self, problem, action):
        return problem["code"] == "missing" and hasattr(action, "keys")


@fault
class UnknownIgnored(Lenient):
    """An unknown field is ignored."""

    def forgives(self, problem, action):
        return problem["code"] == "unknown"


@fault
class Broadcast(Lenient):
    """A single number is broadcast to both thrusters."""

    def forgives(self, problem, action):
        return problem["code"] == "shape" and np.ndim(action["thrust"]) == 0


@fault
class LenientLater(Lenient):
    """Values out of range are refused in the first 8 frames only."""

    def forgives(self, problem, action):
        return problem["code"] == "range" and self.frame_no >= 8


@fault
class HalfLegs(Lenient):
    """Half a leg is rounded."""

    def forgives(self, problem, action):
        return problem["field"].endswith("legs") and problem["code"] == "dtype" and np.ndim(action["legs"]) == 0


@fault
class OldFrames(Lander):
    """An action for the frame before is executed."""

    def problem(self, table):
        problem = super().problem(table)
        late = problem and problem["code"] == "frame_no" and table["frame_no"] == self.frame_no - 1
        return self.broken_rule(table["action"]) if late else problem


@fault
class AnybodysAction(Lander):
    """An action for another environment is executed."""

    def problem(self, table):
        problem = super().problem(table)
        return self.broken_rule(table["action"]) if problem and problem["code"] == "env_id" else problem


@fault
class RaisesOnIllegal(Lander):
    """An illegal action raises."""

    def refusal(self, problem):
        raise ValueError(problem["message"])


@fault
class SilentRefusal(Lander):
    """An illegal action is refused without an error."""

    def refusal(self, problem):
        return self.table(), self.reward_table(0.0)


@fault
class RefusalCosts(Lander):
    """An illegal action costs fuel."""

    def refusal(self, problem):
        self.fuel = max(self.fuel - 1, 0)
        return super().refusal(problem)


@fault
class RefusalPunishes(Lander):
    """A refused action has the reward -1."""

    def refusal(self, problem):
        table, _ = super().refusal(problem)
        return table, self.reward_table(-1.0)


@fault
class RefusalDraws(Lander):
    """A refused action draws a gust, so that the rest of the episode differs."""

    def refusal(self, problem):
        self.gust()
        return super().refusal(problem)


@fault
class RefusalCounts(Lander):
    """A refused action advances frame_no."""

    def refusal(self, problem):
        self.frame_no += 1
        return super().refusal(problem)


@fault
class RefusalEnds(Lander):
    """A refused action ends the episode."""

    def refusal(self, problem):
        self.ended, self.phase = (0, 1), "ended"
        return super().refusal(problem)


@fault
class RefusalTicks(Lander):
    """Refused actions count against the time limit, in secret."""

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


@fault
class StickyError(Lander):
    """The error of a refused action stays in the next tables."""

    kept = None

    def refusal(self, problem):
        self.kept = problem
        return super().refusal(problem)

    def extra(self):
        return super().extra() | ({} if self.kept is None else {"error": self.kept})


@fault
class ErrorWithoutReason(Lander):
    """The error of a refused action is empty."""

    def refusal(self, problem):
        return super().refusal({})


@fault
class HighBorderRefused(Lander):
    """The highest legal thrust is refused."""

    def broken_rule(self, action):
        problem = super().broken_rule(action)
        if problem is None and np.max(action["thrust"]) >= 1:
            return self.error("range", "thrust", "above 1")
        return problem


@fault
class LegsRefused(Lander):
    """The legs can't be extended once the fuel is below 40."""

    def broken_rule(self, action):
        problem = super().broken_rule(action)
        if problem is None and action["legs"] == 1 and self.fuel < 40:
            return self.error("range", "legs", "above 0")
        return problem
