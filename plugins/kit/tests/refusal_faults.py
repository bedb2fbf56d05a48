"""Faults in an environment's ranges and refusals, and the check that must see each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import Field
from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, _, replaces = planters(FAULTS)


replaces(Sleds, "wrong", {
    "UpperBorderIsRefused -> borders": lambda self, field, value: (Sleds.wrong(self, field, value) or ("too large" if
        field.shape and (value >= 1).any() else "")),
    "LowestGearIsRefused -> borders": lambda self, field, value: (Sleds.wrong(self, field, value) or ("too small" if not
        field.shape and value < 1 else "")),
    "TruthCountsAsNumber -> refusals": lambda self, field, value: (Sleds.wrong(self, field, value.astype(float) if
        value.dtype == bool and field.shape else value)),
})  # fmt: skip


class Illegal(Sleds):
    """Acts on an illegal action in a way of its own."""

    def refusal(self, error: Any) -> Any:
        self.seen()
        return super().refusal(error)

    def seen(self) -> None:
        """Do what the fault does."""


@fault("refusals late")
class IllegalActionsCountAsTime(Illegal):
    spent = 0

    def start(self) -> None:
        super().start()
        self.spent = 0

    def seen(self) -> None:
        self.spent += 1

    def ends(self) -> Any:
        return 0, int(self.frame_no + self.spent // 40 >= self.horizon)


@fault("equal episodes")
class IllegalActionsLeakIntoLaterEpisodes(Sleds):
    def start(self) -> None:
        super().start()
        self.count = getattr(self, "count", 0) + 1

    def value(self) -> Any:
        return super().value() - 1e-6 * self.count


@fault("refusals change nothing")
class IllegalActionsDraw(Illegal):
    def seen(self) -> None:
        if self.frame_no > 4:
            self.rng.normal()


@fault("refusals late")
class LateActionsAreNotChecked(Sleds):
    def error(self, request: Any) -> str:
        return "" if self.frame_no > 9 and isinstance(request, Mapping) and "action" in request and isinstance(
            request["action"], Mapping) and set(request["action"]) == {"force", "gear"} and np.shape(
            request["action"]["force"]) == (3,) else super().error(request)  # fmt: skip

    def taken(self, action: Any) -> Any:
        try:
            return super().taken(action)
        except Exception:
            return np.zeros(3, np.float32), 0


@fault("refusals")
class MiddleElementIsNotChecked(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        if field.shape == value.shape == (3,) and value.dtype.kind == "f":
            value = np.array([value[0], 0, value[2]])
        return super().wrong(field, value)


@fault("refusals")
class FarValuesAreWrapped(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        far = value.shape == field.shape and value.dtype.kind == "f" and (np.abs(value) > 900).any()
        return "" if far and np.isfinite(value).all() else super().wrong(field, value)


@fault("refusals")
class FractionsOfGearsAreCut(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        if not field.shape and value.dtype.kind == "f":
            return ""
        return super().wrong(field, value)


@fault("refusals")
class BroadcastsShapes(Sleds):
    def wrong(self, field: Field, value: Any) -> str:
        return super().wrong(field, np.broadcast_to(value, field.shape) if value.ndim == 0 else value)

    def taken(self, action: Any) -> Any:
        return np.broadcast_to(np.asarray(action["force"], np.float32), (3,)), int(action["gear"])


@fault("refusals")
class OneStaleFrameIsTaken(Sleds):
    def error(self, request: Any) -> str:
        if isinstance(request, Mapping) and request.get("frame_no") == self.frame_no - 1 and type(
            request["frame_no"]) is int:  # fmt: skip
            request = {**request, "frame_no": self.frame_no}
        return super().error(request)


@fault("refusals")
class RefusalShowsAnotherFrame(Illegal):
    def observed(self) -> Any:
        observed = super().observed()
        observed["position"] = observed["position"] + np.float32(getattr(self, "off", 0.0))
        return observed

    def refusal(self, error: Any) -> Any:
        self.off = 1.0
        answer = super().refusal(error)
        self.off = 0.0
        return answer


@fault("refusals")
class RefusalEndsTheEpisode(Sleds):
    def refusal(self, error: Any) -> Any:
        table, reward = super().refusal(error)
        return {**table, "truncated": 1}, reward


replaces(Sleds, "refusal", {
    "RefusalSaysNothing -> refusals": lambda self, error: Sleds.refusal(self, "  "),
})  # fmt: skip


@fault("kept refusals")
class RefusalIsABuffer(Sleds):
    def observed(self) -> Any:
        observed = super().observed()
        if getattr(self, "refusing", False):
            if not hasattr(self, "page"):
                self.page = np.zeros(3, np.float32)
            observed["position"] = self.page
        if hasattr(self, "page"):
            self.page[:] = self.position
        return observed

    def refusal(self, error: Any) -> Any:
        self.refusing = True
        answer = super().refusal(error)
        self.refusing = False
        return answer
