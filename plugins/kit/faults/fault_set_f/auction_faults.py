"""Faults of `Auction`, each one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import IllegalAction
from plugins.kit.faults.fault_set_f.common import NOTHING, fault
from plugins.kit.faults.fault_set_f.environments import AGENTS, Auction

PART = "environment"
Tables = tuple[dict[str, Any], dict[str, Any]]
Values = dict[str, np.ndarray]


@fault(PART, "6.2.3.3-2", "with several agents, reward is a dictionary from each agent to its reward")
class RewardOfWinnersAlone(Auction):
    """The reward has an entry for the winner, and none for the agents that get nothing."""

    def act(self, values: Values, extra: dict[str, Any]) -> dict[str, int]:
        return {a: reward for a, reward in super().act(values, extra).items() if reward}


@fault(PART, "6.2.3.1-3", "extra_info contains the mapping from the whole observation to each agent's own")
class MappingOfResetAlone(Auction):
    """The mapping of the agents is in the table of a reset, and in no other one."""

    def extra(self, values: Values | None) -> dict[str, Any]:
        extra = super().extra(values)
        if self.frame:
            del extra["agents"]
        return extra


@fault(PART, "6.2.3.1-3", "the mapping names fields of the whole observation")
class MappingToAnotherName(Auction):
    """The mapping of the last agent names a field that the observation does not have."""

    def mapping(self) -> dict[str, dict[str, str]]:
        return {**super().mapping(), "blue": {"purse": "blue_coins", "item": "item", "left": "left"}}


@fault(PART, "B.3.2-3", "a message is in the table that its step returns")
class MessagesOneStepLate(Auction):
    """A message arrives with the table of the step after the one that sent it."""

    def begin(self, options: Any) -> None:
        super().begin(options)
        self.late: dict[str, dict[str, str]] = {a: {} for a in AGENTS}

    def messages(self, values: Values) -> dict[str, dict[str, str]]:
        late, self.late = self.late, super().messages(values)
        return late


@fault(PART, "B.3.2-3", "a message arrives whole")
class MessagesAreCut(Auction):
    """A message is cut to 12 of its 16 characters."""

    def messages(self, values: Values) -> dict[str, dict[str, str]]:
        return {to: {who: text[:12] for who, text in own.items()} for to, own in super().messages(values).items()}


@fault(PART, "B.3.2-3", "a message is for its receiver alone")
class FirstReceiverHearsAll(Auction):
    """Receiver 0 is taken for none given, so that a message for red reaches everybody."""

    def reaches(self, to: int, place: int) -> bool:
        return (to if to > 0 else -1) in (-1, place)


@fault(PART, "B.3.2-3", "a refused action sends no message")
class RefusedMessagesArrive(Auction):
    """The messages of an action that the auction refuses for a purse are in the table with the error."""

    def values(self, action: Any) -> Values:
        try:
            return super().values(action)
        except IllegalAction as refused:
            self.refused = None
            if refused.violation.code == "purse":
                self.refused = self.messages(self.action.validate(action["action"], "action"))
            raise

    def refuse(self, error: dict[str, Any]) -> Tables:
        table, reward = super().refuse(error)
        if error["code"] == "purse" and self.refused is not None:
            table["extra_info"]["messages"] = self.refused
        return table, reward


@fault(PART, "6.4-b", "action_mask: which values an agent can pay, in this frame")
class MaskIsOld(Auction):
    """The mask is that of the frame before, without what was just paid."""

    def act(self, values: Values, extra: dict[str, Any]) -> dict[str, int]:
        self.old = super().masks()
        return super().act(values, extra)

    def begin(self, options: Any) -> None:
        super().begin(options)
        self.old = super().masks()

    def masks(self) -> dict[str, np.ndarray]:
        return {name: mask.copy() for name, mask in self.old.items()}


@fault(PART, "6.2.1-6", "an action that the rules forbid is refused, not executed as another one")
class PoorBidIsLowered(Auction):
    """A bid above the purse is lowered to the purse and executed."""

    def values(self, action: Any) -> Values:
        values = super(Auction, self).values(action)
        return {**values, **{f"{a}_bid": np.minimum(values[f"{a}_bid"], self.purse[a]) for a in AGENTS}}


@fault(PART, "6.4-b", "an error has a code that is described")
class CodeIsUnknown(Auction):
    """A bid above the purse is refused with a code that neither the page nor the description has."""

    def refuse(self, error: dict[str, Any]) -> Tables:
        return super().refuse({**error, "code": "poor"} if error["code"] == "purse" else error)


@fault(PART, "6.2.2.1-3", "seed is a whole number from 0")
class SeedZeroIsNone(Auction):
    """Seed 0 is taken for no seed, so that its episodes differ."""

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        seedless = isinstance(options, dict) and options.get("seed") == 0 and not isinstance(options["seed"], bool)
        return super().reset({k: v for k, v in options.items() if k != "seed"} if seedless else options)


@fault(PART, "6.2.3.1-5", "in inference an agent cannot get at the internal state")
class StateInInference(Auction):
    """An environment for inference whose tables hold the item that follows."""

    mode = "inference"

    def extra(self, values: Values | None) -> dict[str, Any]:
        return {**super().extra(values), "state": self.hidden()}


@fault(PART, "contract", "a step after the end of an episode is an error")
class StepsAfterTheEnd(Auction):
    """After four rounds without a sale the flag is set, and further steps are carried out."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Tables:
        if not self.closed and self.ends[1]:
            self.running = True
        return super().step(action, extra_info)


@fault(PART, "6.2.3.3-T3.frame_no", "Tables 1 and 3 of a step have the same frame_no")
class RewardFrameIsOld(Auction):
    """The reward of a step names the frame in which the action was chosen."""

    def rewarded(self, reward: Any) -> dict[str, Any]:
        sold = isinstance(reward, dict) and any(reward.values())
        return {**super().rewarded(reward), "frame_no": self.frame - int(sold)}


@fault(PART, "6.2.3.4-T4.frame_no", "Table 4 has the frame_no of the frame that it shows")
class PictureFrameIsOld(Auction):
    """Table 4 names the frame before the one that it shows."""

    def render(self, options: Any = NOTHING) -> None:
        if isinstance(options, dict) and callable(to := options.get("to")):
            frame = max(self.frame - 1, 0)
            super().render({**options, "to": lambda table: to({**table, "frame_no": frame})})
        else:
            super().render(options)


@fault(PART, "6.2.3.1-T1.env_id", "env_id is unique among instances")
class OneIdForAll(Auction):
    """Instances that were made with the same settings have the same name."""

    def new_id(self) -> str:
        return "auction-" + "-".join(AGENTS)


@fault(PART, "6.2.1-6", "a refused action has no effect on what follows")
class RefusalCountsAsIdle(Auction):
    """A refused step counts as a round without a sale, so that the auction ends early."""

    def refuse(self, error: dict[str, Any]) -> Tables:
        self.idle = min(self.idle + 1, 3)
        return super().refuse(error)


@fault(PART, "contract", "after close reset and step raise an error")
class ClosedGoesOn(Auction):
    """A reset after close begins an episode."""

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        self.closed = False
        return super().reset(options)


@fault(PART, "6.2.3.1-T1.observation", "observation fits its description: at most 8 characters, no item at the end")
class LastItemStays(Auction):
    """After the last sale the table still names the item that was sold, although none is left."""

    def seen(self) -> dict[str, np.ndarray]:
        seen = super().seen()
        if self.items:
            self.last = seen["item"]
        return {**seen, "item": self.last.copy()}


@fault(PART, "6.2.3.2-T2.env_id", "an action for another instance is refused")
class AnyNameIsTaken(Auction):
    """An action that names another environment is executed, as long as the name has at most 36 characters."""

    def values(self, action: Any) -> Values:
        name = action.get("env_id") if isinstance(action, dict) else None
        is_name = isinstance(name, str) and 0 < len(name) <= 36
        return super().values({**action, "env_id": self.env_id} if is_name else action)
