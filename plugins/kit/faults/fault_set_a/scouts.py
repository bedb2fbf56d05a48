"""Three scouts as a `World` of several agents, with messages, addressees, masks, a hidden state; and faults of it."""

from __future__ import annotations

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import check_options
from rlenv_robot.tasks.agents import messages, observed_fields
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import ACTION_MASK

NAMES = ("ada", "bo", "cy")


def of(name, **fields):
    """Return a scout's local names -> names in the whole."""
    return {mine: f"{name}_{whole}" for mine, whole in fields.items()}


@base
class Scouts(rr.World):
    """Three scouts on a line look for a hidden spring and tell one another of it."""

    part = "environment"
    style = "World of several agents through rr.make"
    adapter, mode = rr.Environment, "training"
    agents = tuple(
        rr.Agent(
            name, of(name, place="place", smell="smell"), of(name, go="go", say="say", to="to"), "say", "to"
        )
        for name in NAMES
    )  # fmt: skip
    observation = rr.Spec(
        "scouts_observation",
        tuple(
            field
            for name in NAMES
            for field in (
                rr.Field(f"{name}_place", (), "int32", 0, 7, meaning="where the scout is"),
                rr.Field(f"{name}_smell", (), "float32", 0, 1, meaning="nearness of the spring, with noise"),
            )
        ),
    )
    action = rr.Spec(
        "scouts_action",
        tuple(
            field
            for name in NAMES
            for field in (
                rr.Field(f"{name}_go", (), "int32", -1, 1, meaning="step"),
                rr.Field(f"{name}_say", (2,), "float32", -1, 1, meaning="message"),
                rr.Field(f"{name}_to", (), "int32", -1, 2, meaning="number of the receiver, -1 for all"),
            )
        ),
    )
    masks = rr.Spec(
        "scouts_masks",
        tuple(rr.Field(f"{name}_go", (3,), "uint8", 0, 1, meaning="1 for a step that a wall allows") for name in NAMES),
    )
    description = rr.EnvDescription(
        "Meet at the spring. The episode ends there, or after 20 steps.",
        rr.Field("reward", (), "float64", -1, 0, meaning="a dictionary from agent to minus its distance / 8"),
        {"seed": "whole number from 0: determines places, spring and noise from here on"},
        extra_info={
            "agents": "agent -> its own name -> name in this observation",
            "messages": "receiver -> sender -> the message in the sender's last action; absent after a reset",
            ACTION_MASK: "field -> 1 for each value that a wall allows",
            "state": "spring: where it is; in training only, never in inference",
        },
        error_codes={"wall": "the scout would step off the line"},
    )

    def __init__(self):
        self.rng = np.random.default_rng()
        self.places, self.spring, self.clock = np.zeros(3, np.int32), 0, 0

    @classmethod
    def made(cls):
        return rr.make(cls()) if cls.adapter is rr.Environment else cls.adapter(cls())

    def reset(self, options):
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(check_seed(options["seed"]))
        self.places = self.rng.integers(0, 8, 3).astype(np.int32)
        self.spring, self.clock = int(self.places[0] + self.rng.integers(1, 8)) % 8, 0
        return self.seen(dict.fromkeys(NAMES, 0.0), {})

    def step(self, action, extra_info):
        steps = np.array([int(action[f"{name}_go"]) for name in NAMES])
        after = self.places + steps
        for name, place in zip(NAMES, after, strict=True):
            if not 0 <= place <= 7:
                raise rr.IllegalAction(rr.Violation("wall", f"action.{name}_go", (), f"{name} would leave the line"))
        self.places, self.clock = after.astype(np.int32), self.clock + 1
        reward = {name: -abs(int(place) - self.spring) / 8 for name, place in zip(NAMES, self.places, strict=True)}
        return self.seen(reward, self.sent(action))

    def sent(self, action):
        return {
            receiver: {sender: message.copy() for sender, message in received.items()}
            for receiver, received in messages(self.agents, action).items()
        }

    def mapping(self):
        return observed_fields(self.agents)

    def mask(self):
        return {
            f"{name}_go": np.array([place > 0, True, place < 7], np.uint8)
            for name, place in zip(NAMES, self.places, strict=True)
        }

    def told(self, sent):
        extra = {"agents": self.mapping(), ACTION_MASK: self.mask()}
        if any(sent.values()):
            extra["messages"] = sent
        if self.mode == "training":
            extra["state"] = {"spring": np.array(self.spring, np.int32)}
        return extra

    def seen(self, reward, sent):
        observation = {}
        for name, place in zip(NAMES, self.places, strict=True):
            nearness = 1 - abs(place - self.spring) / 8 + self.rng.normal(0, 0.05)
            observation[f"{name}_place"] = np.array(place, np.int32)
            observation[f"{name}_smell"] = np.array(np.clip(nearness, 0, 1), np.float32)
        over = bool((self.places == self.spring).all())
        return rr.TimeStep(observation, reward, over, not over and self.clock >= 20, self.told(sent))


@fault("6.2.3.1-3", "steps")
class NoMapping(Scouts):
    """extra_info has no mapping from the observation to the agents' own."""

    def told(self, sent):
        return {key: value for key, value in super().told(sent).items() if key != "agents"}


@fault("6.2.3.1-3", "steps")
class MappingAtResetAlone(Scouts):
    """The mapping is in the table of reset and in none of step."""

    def told(self, sent):
        return {key: value for key, value in super().told(sent).items() if key != "agents" or not self.clock}


@fault("6.2.3.1-3", "steps")
class MappingToNothing(Scouts):
    """The mapping names fields that the observation does not have."""

    def mapping(self):
        return {name: {mine: f"{name}.{mine}" for mine in ("place", "smell")} for name in NAMES}


@fault("6.2.3.1-3", "steps")
class MappingOfTwo(Scouts):
    """The mapping has no entry for the last agent."""

    def mapping(self):
        return {name: own for name, own in super().mapping().items() if name != "cy"}


@fault("contract", "steps")
class MappingOfTheNeighbour(Scouts):
    """The mapping gives each agent the fields of the next one, unlike the agents' declaration."""

    def mapping(self):
        own = super().mapping()
        return {name: own[after] for name, after in zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True)}


@fault("contract", "keeping")
class MappingIsShared(Scouts):
    """All tables share one mapping, so what a caller writes into it is in every later table."""

    def mapping(self):
        self.shared = getattr(self, "shared", None) or super().mapping()
        return self.shared


@fault("6.2.3.3-2", "steps")
class SumOfRewards(Scouts):
    """The reward is the agents' sum as one number."""

    def seen(self, reward, sent):
        return super().seen(sum(reward.values()) / 3, sent)


@fault("6.2.3.3-2", "steps")
class NoRewardAtTheSpring(Scouts):
    """An agent that stands at the spring is left out of the rewards."""

    def seen(self, reward, sent):
        there = {name for name, place in zip(NAMES, self.places, strict=True) if place == self.spring}
        return super().seen({name: value for name, value in reward.items() if name not in there}, sent)


@fault("6.2.3.3-2", "steps")
class RewardsByNumber(Scouts):
    """The rewards are by agent_0 to agent_2, which are no names of agents."""

    def seen(self, reward, sent):
        return super().seen({f"agent_{place}": value for place, value in enumerate(reward.values())}, sent)


class OneZero(rr.Environment):
    """An adapter that answers a refusal with one number for all agents."""

    def _refuse(self, violation):
        table, reward = super()._refuse(violation)
        return table, {**reward, "reward": 0.0}


@fault("6.2.3.3-2", "refusals")
class RefusedReward(Scouts):
    """The reward of a refused joint action is a number instead of a dictionary from agent to 0."""

    adapter = OneZero


@fault("B.3.2-3", "steps")
class LateMessages(Scouts):
    """A message arrives one frame late."""

    kept = {}  # noqa: RUF012

    def reset(self, options):
        self.kept = {}
        return super().reset(options)

    def sent(self, action):
        late, self.kept = self.kept, super().sent(action)
        return late


@fault("B.3.2-3", "replay")
class MessagesOutliveTheEpisode(Scouts):
    """The first frame of an episode repeats the last messages of the episode before."""

    kept = {}  # noqa: RUF012

    def sent(self, action):
        self.kept = super().sent(action)
        return self.kept

    def told(self, sent):
        return super().told(sent or self.kept)


@fault("B.3.2-3", "steps")
class CutMessages(Scouts):
    """Only the first number of a message arrives."""

    def sent(self, action):
        return {to: {name: said[:1] for name, said in all.items()} for to, all in super().sent(action).items()}


@fault("B.3.2-3", "steps")
class MessagesToTheNext(Scouts):
    """A message with an addressee arrives at the agent after it in the list."""

    def sent(self, action):
        tos = {f"{name}_to": action[f"{name}_to"] for name in NAMES}
        return super().sent({**action, **{key: to if to < 0 else (to + 1) % 3 for key, to in tos.items()}})


@fault("B.3.2-3", "steps")
class EverybodyHears(Scouts):
    """A message with an addressee arrives at all agents."""

    def sent(self, action):
        return super().sent({**action, **{f"{name}_to": np.array(-1, np.int32) for name in NAMES}})


@fault("B.3.2-3", "steps")
class AllMeansTheFirst(Scouts):
    """A message to all arrives at the first other agent alone."""

    def sent(self, action):
        return super().sent({
            **action,
            **{f"{name}_to": np.array(int(not place), np.int32) if action[f"{name}_to"] < 0 else action[f"{name}_to"]
               for place, name in enumerate(NAMES)},
        })  # fmt: skip


@fault("6.2.1-6", "refusals")
class RefusedButHeard(Scouts):
    """The messages of a refused joint action arrive with the next frame."""

    heard = {}  # noqa: RUF012

    def step(self, action, extra_info):
        self.heard = {to: {**self.heard.get(to, {}), **received} for to, received in super().sent(action).items()}
        timestep = super().step(action, extra_info)
        self.heard = {}
        return timestep

    def sent(self, action):
        return self.heard


class ScoutsInInference(Scouts):
    """Make the correct subject for inference."""

    mode = "inference"


@fault("6.2.3.1-5", "reset", of=ScoutsInInference)
class SpringInInference(ScoutsInInference):
    """In inference the hidden place of the spring is still in extra_info."""

    def told(self, sent):
        return {**super().told(sent), "state": {"spring": np.array(self.spring, np.int32)}}


@fault("contract", "steps")
class MaskOfAda(Scouts):
    """All agents get the mask of the first one."""

    def mask(self):
        return dict.fromkeys(super().mask(), super().mask()["ada_go"])


@fault("6.2.1-6", "refusals")
class WalksToTheWall(Scouts):
    """Where one agent's step is refused, the agents before it in the list have moved already."""

    def step(self, action, extra_info):
        try:
            return super().step(action, extra_info)
        except rr.IllegalAction:
            for place, name in enumerate(NAMES):
                if not 0 <= self.places[place] + action[f"{name}_go"] <= 7:
                    raise
                self.places[place] += action[f"{name}_go"]
