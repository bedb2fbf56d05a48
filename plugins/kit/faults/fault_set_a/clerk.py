"""A customer at a counter as a generator of texts, as a described class; and faults of it."""

from __future__ import annotations

import random
import uuid

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import StepExtra, check_action_table, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import NOTHING

MENU = ("tea", "coffee", "milk", "juice", "cake", "soup")


@base
class Clerk:
    """A customer names a wish at each turn; the clerk answers with a text."""

    part = "environment"
    style = "generator of texts in a described class"
    mode = "training"
    observation = rr.Spec(
        "clerk_observation",
        (
            rr.Field("prompt", (), "text", meaning="what the customer says", characters=48),
            rr.Field("offers", (4,), "text", meaning="what is there", characters=8, counted_by="count"),
            rr.Field("count", (), "int32", 0, 4, meaning="of offers"),
            rr.Field("echo", (), "text", meaning="the answer before", characters=24),
        ),
    )
    action = rr.Spec("clerk_action", (rr.Field("answer", (), "text", meaning="any text", characters=24),))
    description = rr.EnvDescription(
        "Answer the customer with the thing that he wants. Any text is a legal answer.",
        rr.Field("reward", (), "float64", 0, 1, meaning="1 for the right thing, else 0"),
        {"seed": "whole number from 0: determines the dialogues from here on"},
        extra_info={"state": "wish: what the customer wants; in training only, never in inference"},
    )

    def __init__(self):
        self.env_id, self.phase, self.shown = f"clerk {uuid.uuid4().hex[:24]}", "new", ""
        self.dice = random.Random()
        self.wish = ""

    @classmethod
    def made(cls):
        return cls()

    def dialogue(self, dice):
        """Yield what is seen, the reward and whether the dialogue is over; receive an answer."""
        reward, echo = 0.0, ""
        for _ in range(dice.randint(3, 5)):
            offers = dice.sample(MENU, dice.randint(1, 4))
            self.wish = dice.choice(offers)
            seen = {"prompt": f"I would like {self.wish}, please.", "offers": offers, "echo": echo}
            answer = yield seen, reward, False
            reward, echo = float(self.understood(answer) == self.wish), answer
        self.wish = ""
        yield {"prompt": "Thank you.", "offers": [], "echo": echo}, reward, True

    def understood(self, answer):
        return answer.strip().lower()

    def arrays(self, seen):
        return self.observation.validate(self.observation.padded(seen))

    def reset(self, options=NOTHING):
        if self.phase == "closed":
            raise rr.EpisodeError("reset after close: make a new clerk")
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        if options.get("seed") is not None:
            self.dice = self.seeded(check_seed(options["seed"]))
        self.phase, self.frame_no, self.talk = "running", 0, self.dialogue(self.dice)
        self.last, _ = self.listen(None)
        return self.copied()

    def seeded(self, seed):
        return random.Random(seed)

    def listen(self, answer):
        seen, reward, over = self.talk.send(answer)
        self.phase = "ended" if over else "running"
        return {
            "env_id": self.env_id, "frame_no": self.frame_no, "observation": self.arrays(seen),
            "extra_info": self.told(), "terminated": int(over), "truncated": 0,
        }, reward  # fmt: skip

    def told(self):
        return {"state": {"wish": np.array(self.wish, "<U8")}} if self.mode == "training" else {}

    def copied(self, **more):
        observation = {name: np.array(value) for name, value in self.last["observation"].items()}
        return {**self.last, "observation": observation, "extra_info": {**self.last["extra_info"], **more}}

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise rr.EpisodeError(f"step, and the dialogue is {self.phase}: reset it first")
        try:
            answer = self.checked(check_action_table(action, self.env_id, self.frame_no))
            StepExtra().read(extra_info)
        except rr.IllegalAction as refused:
            return self.copied(error=refused.violation.to_dict()), self.paid(0.0)
        self.frame_no += 1
        self.last, reward = self.listen(answer)
        return self.copied(), self.paid(reward)

    def checked(self, action):
        return str(self.action.validate(action, "action")["answer"])

    def paid(self, reward):
        return {"env_id": self.env_id, "frame_no": self.frame_no, "reward": reward}

    def render(self, options=NOTHING):
        check_options(options, "render", "{}", ())
        self.shown = "" if self.phase == "new" else str(self.last["observation"]["prompt"])

    def close(self):
        self.phase = "closed"


@fault("6.4-b", "steps")
class TalksTooLong(Clerk):
    """The prompt is longer than the described number of characters."""

    def arrays(self, seen):
        more = f"{seen['prompt']} There is {', '.join(seen['offers'])}, as far as I can see."
        return {**super().arrays(seen), "prompt": np.array(more)}


@fault("6.4-b", "steps")
class PromptOfBytes(Clerk):
    """The prompt is bytes and described as text."""

    def arrays(self, seen):
        return {**super().arrays(seen), "prompt": np.array(seen["prompt"].encode())}


@fault("contract", "steps")
class OldOffersBehind(Clerk):
    """Behind the last offer that counts stand offers of the turn before."""

    old = None

    def arrays(self, seen):
        values, count = super().arrays(seen), len(seen["offers"])
        if self.old is not None:
            values["offers"] = np.concatenate([values["offers"][:count], self.old[count:]])
        self.old = values["offers"]
        return values


@fault("6.2.1-6", "refusals")
class LongAnswersAreCut(Clerk):
    """An answer that is too long is cut and executed."""

    def checked(self, action):
        if isinstance(action, dict) and isinstance(action.get("answer"), str):
            action = {**action, "answer": action["answer"][:24]}
        return super().checked(action)


@fault("6.2.2.2-1", "borders")
class AsciiOnly(Clerk):
    """A legal answer with a letter beyond ASCII makes step raise UnicodeEncodeError."""

    def understood(self, answer):
        return super().understood(answer.encode("ascii").decode())


@fault("6.2.2.2-1", "borders")
class FirstLetter(Clerk):
    """The empty answer, which is legal, makes step raise IndexError."""

    def understood(self, answer):
        return super().understood(answer[0].lower() + answer[1:])


@fault("6.2.3.1-T1.observation", "steps")
class NoPromptAtTheEnd(Clerk):
    """The prompt of the last frame is None instead of a text."""

    def arrays(self, seen):
        return {**super().arrays(seen), **({} if seen["offers"] else {"prompt": np.array(None)})}


@fault("6.2.2.2-4", "steps")
class RunsOut(Clerk):
    """The last step of a dialogue raises StopIteration instead of returning the end."""

    def listen(self, answer):
        table, reward = super().listen(answer)
        return (table, reward) if not table["terminated"] else next(iter(()))


@fault("6.2.2.1-3", "instances")
class DiceOfTheModule(Clerk):
    """All clerks of a process throw the dice of the module random, so one disturbs the other."""

    def __init__(self):
        super().__init__()
        self.dice = random

    def seeded(self, seed):
        random.seed(seed)
        return random


@fault("6.2.2.1-3", "replay")
class SaltedSeed(Clerk):
    """The dialogue is drawn from the hash of a text with the seed, which is another one in each process."""

    def seeded(self, seed):
        return random.Random(hash(f"dialogue {seed}"))


@fault("6.2.3.1-T1.extra_info", "steps")
class ExtraInfoIsText(Clerk):
    """extra_info is a text instead of a structure."""

    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        return ({**table, "extra_info": "ok"} if "error" not in table["extra_info"] else table), reward


@fault("contract", "order")
class LastWordsAgain(Clerk):
    """After the end step returns the last frame again instead of an error about the order of calls."""

    def step(self, action, extra_info=NOTHING):
        return (self.copied(), self.paid(0.0)) if self.phase == "ended" else super().step(action, extra_info)
