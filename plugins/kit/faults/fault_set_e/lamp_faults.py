"""Faults of the guessing games."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np

from .common import NOTHING, fault
from .lamps import AGENTS, Game, Lamps, other

# -- Messages, masks, agents


class _Echo(Game):
    def post(self, given: dict[str, int]) -> dict[str, int]:
        return {agent: given[f"{agent}_hint"] for agent in AGENTS}


@fault("vector", "B.3.2-3", "a message is passed on to the agent that it is for")
class HintsComeBack(Lamps):
    """Each agent receives its own message under the other's name."""

    game = _Echo


class _Slow(Game):
    waiting: dict[str, int] | None = None

    def begin(self, seed: int) -> None:
        self.waiting = None
        super().begin(seed)

    def post(self, given: dict[str, int]) -> dict[str, int]:
        before, self.waiting = self.waiting, super().post(given)
        return before or dict.fromkeys(AGENTS, 0)


@fault("vector", "B.3.2-3", "a message is in the table that its step returns")
class HintsComeLate(Lamps):
    """A message arrives one frame late."""

    game = _Slow


@fault("vector", "B.3.2-3", "a refused action sends no message")
class RefusedHintsArrive(Lamps):
    """The messages of a refused row are passed on."""

    def judge(self, game: Game, given: dict[str, int], frame_no: int) -> Any:
        wrong = super().judge(game, given, frame_no)
        if wrong and all(0 <= given[f"{agent}_hint"] <= 9 for agent in AGENTS):
            game.messages = game.post(given)
        return wrong


class _Keeps(Game):
    def begin(self, seed: int) -> None:
        kept = self.messages
        super().begin(seed)
        self.messages = kept


@fault("vector", "B.3.2-3", "a table of a reset has no message")
class HintsOutliveTheEpisode(Lamps):
    """The last message of an episode is still there after a reset."""

    game = _Keeps


class _Three(Game):
    def post(self, given: dict[str, int]) -> dict[str, int]:
        return {agent: hint & 7 for agent, hint in super().post(given).items()}


@fault("vector", "B.3.2-3", "a message arrives whole")
class HintsOfThreeBits(Lamps):
    """Messages lose their fourth bit."""

    game = _Three


@fault("vector", "B.3.2-3", "a message is of its own row")
class HintsOfRowZero(Lamps):
    """All rows receive the messages of row 0."""

    def extra(self, errors: dict[int, dict[str, Any]], ended: list[int]) -> dict[str, Any]:
        extra = super().extra(errors, ended)
        for received in extra.get("messages", {}).values():
            for sender, hints in received.items():
                received[sender] = np.full_like(hints, hints[0])
        return extra


class _Stale(Game):
    before: dict[str, int | None] | None = None

    def play(self, given: dict[str, int]) -> dict[str, float]:
        self.before = dict(self.newest)
        return super().play(given)

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.before = None

    def masks(self) -> dict[str, list[int]]:
        kept = self.newest
        self.newest = self.before or kept
        masks = super().masks()
        self.newest = kept
        return masks


@fault("vector", "contract", "a mask says which actions are legal now")
class MasksOfTheFrameBefore(Lamps):
    """Masks are one frame old: they allow a call that is refused."""

    game = _Stale


class _Crossed(Game):
    def masks(self) -> dict[str, list[int]]:
        masks = super().masks()
        return {f"{agent}_call": masks[f"{other(agent)}_call"] for agent in AGENTS}


@fault("vector", "contract", "a mask says which actions of its field are legal")
class MasksCrossed(Lamps):
    """Each agent gets the other's mask."""

    game = _Crossed


class _Lenient(Game):
    def wrong(self, given: dict[str, int]) -> Any:
        wrong = super().wrong(given)
        return None if wrong and "just before" in wrong[2] else wrong


@fault("vector", "6.2.1-6", "an action that the mask excludes is refused")
class MasksOnlyAdvise(Lamps):
    """A call that the mask excludes is carried out."""

    game = _Lenient


class _Forgets(Game):
    def wrong(self, given: dict[str, int]) -> Any:
        wrong = super().wrong(given)
        if wrong:
            self.newest = dict.fromkeys(AGENTS)
        return wrong


@fault("vector", "6.2.1-6", "a refused action changes nothing")
class RefusalsForgetTheCalls(Lamps):
    """After a refusal every call is allowed again, in the mask too."""

    game = _Forgets


@fault("vector", "6.2.3.1-3", "with several agents, extra_info contains the mapping")
class MappingAtResetsAlone(Lamps):
    """The tables of steps lack the agents' mapping."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        table, reward = super().step(action, extra_info)
        del table["extra_info"]["agents"]
        return table, reward


@fault("vector", "6.2.3.1-3", "the mapping is from the whole observation")
class MappingToNothing(Lamps):
    """South's mapping names a field that the observation does not have."""

    def extra(self, errors: dict[int, dict[str, Any]], ended: list[int]) -> dict[str, Any]:
        extra = super().extra(errors, ended)
        extra["agents"]["south"]["sees"] = "south_seen"
        return extra


@fault("vector", "6.2.3.3-2", "with several agents, reward is a dictionary from each agent to its reward")
class RewardsOfTheScorers(Lamps):
    """The rewards of an agent that got none in the whole batch are left out."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        table, reward = super().step(action, extra_info)
        reward["reward"] = {agent: gains for agent, gains in reward["reward"].items() if gains.any()} or {
            "north": reward["reward"]["north"]
        }
        return table, reward


# -- Ends


@fault("vector", "contract", "the step after an end begins the next episode and ignores the action")
class FirstActionIsPlayed(Lamps):
    """The step after an end begins the next episode and plays the action in it."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        given, frames = self.read(action, extra_info) if self.state == "running" else ([], [])
        again = (
            [row for row, game in enumerate(self.games) if any(game.ended) and not game.wrong(given[row])]
            if given
            else []
        )
        for row in again:
            self.games[row].begin(self.seed)
            frames[row] = 0
        action = {**action, "frame_no": np.array(frames)} if again else action
        return super().step(action, extra_info)


@fault("vector", "contract", "the step after an end has reward 0")
class LastRewardTwice(Lamps):
    """The step that begins the next episode repeats the last episode's reward."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        over = [any(game.ended) for game in self.games]
        table, reward = super().step(action, extra_info)
        for agent, gains in reward["reward"].items():
            if hasattr(self, "gains"):
                gains[over] = self.gains[agent][over]
        self.gains = {agent: gains.copy() for agent, gains in reward["reward"].items()}
        return table, reward


@fault("vector", "contract", "the step after an end ignores the row's action, also an illegal one")
class BeginningNeedsALegalAction(Lamps):
    """A row that ended does not begin while its action is illegal."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        given, _ = self.read(action, extra_info) if self.state == "running" else ([], [])
        held = {row: self.games[row].ended for row in range(len(given)) if any(self.games[row].ended)}
        held = {row: ended for row, ended in held.items() if self.games[row].wrong(given[row])}
        begins = {row: self.games[row].begin for row in held}
        for row in held:
            self.games[row].begin = lambda seed: None  # type: ignore[method-assign]
        try:
            return super().step(action, extra_info)
        finally:
            for row in begins:
                del self.games[row].begin


@fault("vector", "contract", "both flags are 0 in the step that begins the next episode")
class FlagsOutliveTheEpisode(Lamps):
    """The flag is still 1 in the table of the next episode's first observation."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        over = [any(game.ended) for game in self.games]
        table, reward = super().step(action, extra_info)
        table["truncated"][over] = 1
        return table, reward


@fault("vector", "contract", "with next_step the observation at the end is the true last one")
class EndsShowTheNextStart(Lamps):
    """At an end the observation is the next episode's first; the last one is in final alone."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        before = [any(game.ended) for game in self.games]
        table, reward = super().step(action, extra_info)
        for row, game in enumerate(self.games):
            if any(game.ended) and not before[row]:
                ahead = self.game(game.name, row)
                ahead.played = game.played
                ahead.begin(self.seed)
                for name, value in ahead.seen().items():
                    table["observation"][name][row] = value
        return table, reward


@fault("vector", "contract", "final names the environments that ended")
class FinalOfTheDecided(Lamps):
    """Rows whose time is up are missing in final."""

    def extra(self, errors: dict[int, dict[str, Any]], ended: list[int]) -> dict[str, Any]:
        return super().extra(errors, [row for row in ended if self.games[row].ended[0]])


class _Long(Game):
    def judge(self) -> None:
        if max(self.score.values()) >= 4:
            self.ended = (1, 0)
        elif self.frame_no >= 60:
            self.ended = (0, 1)


@fault("vector", "6.4-b", "an observation stays in its range")
class FourPoints(Lamps):
    """A game ends at four right calls, where the description says 3 at most."""

    game = _Long


class _Impatient(Game):
    refusals = 0

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.refusals = 0

    def wrong(self, given: dict[str, int]) -> Any:
        wrong = super().wrong(given)
        self.refusals += bool(wrong)
        return wrong

    def judge(self) -> None:
        super().judge()
        if self.frame_no + self.refusals >= self.rounds and not self.ended[0]:
            self.ended = (0, 1)


@fault("vector", "contract", "a refused action does not count towards the time limit")
class RefusalsTakeTime(Lamps):
    """Refused actions count towards the time limit."""

    game = _Impatient


# -- Seeds, rows, refusals


class _Named(Game):
    def shuffle(self, seed: int) -> random.Random:
        return random.Random(f"{seed}/{self.name}/{self.played}")


@fault("vector", "6.2.2.1-3", "equal seeds give equal episodes")
class SeedsWithTheName(Lamps):
    """The name of the instance enters the seed, so a second batch plays other games."""

    game = _Named


class _Hashed(Game):
    def shuffle(self, seed: int) -> random.Random:
        return random.Random(hash(f"{seed}/{self.row}/{self.played}"))


@fault("vector", "contract", "another process does not change its episodes")
class SeedsByHash(Lamps):
    """Seeds are hashes of texts, which differ between processes."""

    game = _Hashed


@fault("vector", "contract", "seed restarts the count of episodes of all")
class SeedRestartsTheFirst(Lamps):
    """A seed restarts row 0's count of episodes alone."""

    def restart(self, seed: int) -> None:
        self.seed = seed
        self.games[0].played = 0


class _Drawer(Game):
    ZEROS: ClassVar[list[int]] = [0] * 5

    def begin(self, seed: int) -> None:
        super().begin(seed)
        _Drawer.ZEROS[:] = self.lamps
        self.lamps = _Drawer.ZEROS


@fault("vector", "contract", "an action moves its own row alone")
class LampsOfTheClass(Lamps):
    """All games count their calls in one list."""

    game = _Drawer


@fault("vector", "contract", "a batch beside it does not change its episodes")
class GamesFromThePool(Lamps):
    """Two batches play the same game objects."""

    pool: ClassVar[dict[int, Game]] = {}

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.games = [self.pool.setdefault(row, game) for row, game in enumerate(self.games)]


class _Half(Game):
    def wrong(self, given: dict[str, int]) -> Any:
        wrong = super().wrong(given)
        if wrong and wrong[1].startswith("action.south") and 0 <= given["north_call"] <= 4:
            self.lamps[given["north_call"]] += 1
        return wrong


@fault("vector", "6.2.1-6", "the adapter does not execute an illegal action, in no part")
class NorthPlaysAlone(Lamps):
    """North's part of an action is counted before south's is refused."""

    game = _Half


class _Mute(Game):
    def wrong(self, given: dict[str, int]) -> Any:
        wrong = super().wrong(given)
        return wrong and (wrong[0], "action.north_call", wrong[2])


@fault("vector", "6.2.1-7", "an illegal action is answered with information about it")
class ErrorsBlameNorth(Lamps):
    """The error names north's call whatever field was wrong."""

    game = _Mute


@fault("vector", "6.2.3.1-7", "extra_info contains an error message")
class ErrorsWithoutWords(Lamps):
    """The message of an error is empty."""

    def judge(self, game: Game, given: dict[str, int], frame_no: int) -> Any:
        wrong = super().judge(game, given, frame_no)
        return wrong and (*wrong[:2], "")


@fault("vector", "contract", "options of the caller are not changed")
class SeedIsTaken(Lamps):
    """The seed is taken out of the caller's options."""

    def reset(self, options: Any = NOTHING) -> dict[str, Any]:
        table = super().reset(options)
        if isinstance(options, dict):
            options.pop("seed", None)
        return table


@fault("vector", "6.2.3.1-T1.env_id", "env_id has 1 to 36 characters")
class NamesOfForty(Lamps):
    """Names have 40 characters."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.env_ids = [name.ljust(40, "-") for name in self.env_ids]


@fault("vector", "contract", "a step before the first reset is refused")
class StepsBeforeTheReset(Lamps):
    """A step before the first reset is played from an empty state."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        if self.state == "new":
            self.state = "running"
        return super().step(action, extra_info)
