"""Faults of `Riddles`, each one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from plugins.kit.faults.fault_set_f.batches import WORDS, Arrays, Riddle, Riddles
from plugins.kit.faults.fault_set_f.common import fault

PART = "vector"
Errors = tuple[Arrays, dict[int, Any]]


@fault(PART, "contract", "with next_step the step after an end ignores the row's action")
class FirstStepActs(Riddles):
    """The step that begins a row's next episode executes the row's action in it."""

    sent: np.ndarray | None = None

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        self.sent = np.clip(values["guess"], 0, 11)
        return super().act(moved, values)

    def begin(self, rows: np.ndarray) -> None:
        super().begin(rows)
        for row in rows.tolist() if self.sent is not None else ():
            self.rows[row].tried.append(int(self.sent[row]))

    def more(self, moved: np.ndarray, values: Arrays | None) -> dict[str, Any]:
        self.sent = None
        return super().more(moved, values)


@fault(PART, "contract", "the step after an end ignores the row's action, also an illegal one")
class WaitingRowsAreRefused(Riddles):
    """An illegal action of a row whose next episode begins is reported as an error."""

    def checked(self, action: Any, waiting: np.ndarray) -> Errors:
        values, errors = super().checked(action, waiting)
        guess = values["guess"]
        for row in np.flatnonzero(waiting & ((guess < 0) | (guess > 11))).tolist():
            message = f"action.guess is {guess[row]}, allowed are 0 to 11"
            errors[row] = {"code": "range", "field": "action.guess", "index": [], "message": message}
        return values, errors


@fault(PART, "contract", "the step that begins the next episode has reward 0")
class WaitingRowsEarn(Riddles):
    """The step that begins the next episode repeats the last reward."""

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        reward = super().act(moved, values)
        if self.over.any() and hasattr(self, "last"):
            reward = {agent: np.where(self.over, self.last[agent], value) for agent, value in reward.items()}
        self.last = reward
        return reward


@fault(PART, "6.2.3.1-T1.frame_no", "the step that begins the next episode has frame_no 0")
class NextBeginsAtOne(Riddles):
    """The step that begins a row's next episode counts as its first frame."""

    stepping = 0

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        self.stepping = 1
        return super().act(moved, values)

    def begin(self, rows: np.ndarray) -> None:
        super().begin(rows)
        self.frame[rows] = self.stepping

    def more(self, moved: np.ndarray, values: Arrays | None) -> dict[str, Any]:
        self.stepping = 0
        return super().more(moved, values)


@fault(PART, "B.3.2-3", "the message of a refused row arrives nowhere")
class RefusedMessages(Riddles):
    """Messages are passed on before the rules refuse a row's guess."""

    def messages(self, moved: np.ndarray, values: Arrays) -> dict[str, Any]:
        return super().messages(np.ones_like(moved), values)


@fault(PART, "B.3.2-3", "a message stays in its row")
class MessagesCloseUp(Riddles):
    """If a row is refused or waits, the messages of the rows behind it move up by one."""

    def messages(self, moved: np.ndarray, values: Arrays) -> dict[str, Any]:
        order = np.concatenate([np.flatnonzero(moved), np.flatnonzero(~moved)])
        return super().messages(moved[order], {name: value[order] for name, value in values.items()})


@fault(PART, "6.2.3.3-2", "with several agents, reward is a dictionary from each agent to its reward")
class RewardOfTheTeam(Riddles):
    """The reward is one array, of the guesser, for both agents."""

    def act(self, moved: np.ndarray, values: Arrays) -> Any:
        return super().act(moved, values)["guesser"]


@fault(PART, "6.4-b", "action_mask tells which numbers were not guessed yet")
class MaskOfOthers(Riddles):
    """A number that was guessed in any row is masked in all rows."""

    def mask(self) -> np.ndarray:
        return super().mask().min(axis=0, keepdims=True).repeat(self.num_envs, axis=0)


@fault(PART, "6.2.3.1-T1.env_id", "rows of two batches have different names")
class NamesByNumber(Riddles):
    """The rows of each batch are called riddle-0, riddle-1, ..."""

    def new_ids(self, num_envs: int) -> list[str]:
        return [f"riddle-{row}" for row in range(num_envs)]


@fault(PART, "contract", "final names all environments that ended in this step")
class FirstEndAlone(Riddles):
    """If several rows end in one step, final has the first one alone."""

    def finish(self, ended: np.ndarray) -> dict[str, Any]:
        finished = super().finish(ended)
        if finished:
            final = finished["final"]
            last = {name: value[:1] for name, value in final["observation"].items()}
            finished["final"] = {"index": final["index"][:1], "frame_no": final["frame_no"][:1], "observation": last}
        return finished


@fault(PART, "6.2.3.1-7", "a refused row is reported, also beside others")
class FirstErrorAlone(Riddles):
    """If several rows are refused, the error of the first one alone is reported."""

    def step(self, action: Any, *extra: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        table, reward = super().step(action, *extra)
        errors = table["extra_info"].get("error", {})
        for row in sorted(errors)[1:]:
            del errors[row]
        return table, reward


@fault(PART, "6.2.1-6", "a text that is too long is refused")
class LongHintsAreCut(Riddles):
    """A hint that is too long is cut to its 10 characters and passed on."""

    def checked(self, action: Any, waiting: np.ndarray) -> Errors:
        values = action.get("action") if isinstance(action, dict) else None
        hint = np.asarray(values["hint"]) if isinstance(values, dict) and "hint" in values else np.zeros(0)
        if hint.dtype.kind == "U":
            action = {**action, "action": {**values, "hint": hint.astype("<U10")}}
        return super().checked(action, waiting)


@fault(PART, "contract", "the step that begins the next episode has both flags 0")
class FlagsLinger(Riddles):
    """The flag of an end is still 1 in the step that begins the next episode."""

    def step(self, action: Any, *extra: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        before = self.flags.copy()
        table, reward = super().step(action, *extra)
        flags = {"terminated": table["terminated"] | before[0], "truncated": table["truncated"] | before[1]}
        return {**table, **flags}, reward


@fault(PART, "6.2.1-6", "a refused action changes nothing that follows")
class RefusalCountsAsGuess(Riddles):
    """A refused guess counts as one of the six."""

    def checked(self, action: Any, waiting: np.ndarray) -> Errors:
        values, errors = super().checked(action, waiting)
        for row in errors:
            self.rows[row].rounds = min(self.rows[row].rounds + 1, 5)
        return values, errors


@fault(PART, "contract", "neither a batch beside it nor the process's generators change its episodes")
class DrawsFromProcess(Riddles):
    """The name of a riddle comes from the generator of the process."""

    def draw(self, row: int, rng: np.random.Generator) -> None:
        super().draw(row, rng)
        self.rows[row].word = str(np.random.choice(WORDS))


@fault(PART, "6.2.3.1-3", "extra_info contains the mapping from the whole observation to each agent's own")
class MappingWithoutTeller(Riddles):
    """The mapping leaves out the teller."""

    def more(self, moved: np.ndarray, values: Arrays | None) -> dict[str, Any]:
        extra = super().more(moved, values)
        del extra["agents"]["teller"]
        return extra


@fault(PART, "contract", "the last observation of an episode is what its last action led to")
class LastIsCleared(Riddles):
    """The table of an end shows a cleared row, without its last guess."""

    def finish(self, ended: np.ndarray) -> dict[str, Any]:
        finished = super().finish(ended)
        for row in np.flatnonzero(ended.any(axis=0)).tolist():
            self.rows[row] = Riddle(self.rows[row].word, self.rows[row].secret)
        return finished


@fault(PART, "contract", "a reset of some comes after a reset of all")
class FirstResetOfSome(Riddles):
    """A reset of some is taken before the first reset of all, and shows rows that never began."""

    def reset(self, *options: Any) -> dict[str, Any]:
        self.begun = True
        return super().reset(*options)
