"""Source data of a robot that goes from room to room, in a database of SQLite, and their planted faults.

Style: statements of SQL whose parts are attributes, texts and whole numbers as observations, and rewards that the
database lacks in part; a step without a reward costs 1.
"""

from __future__ import annotations

import json
import random
import sqlite3

import numpy as np

from hal import SourceError

ROOMS = ("hall", "kitchen", "office", "laboratory")
LENGTHS = (4, 13, 1, 6, 9, 12, 3)
ENDS = ("goal", "time")
LABELS = ("expert", "random", "mixture")
SCHEMA = """
CREATE TABLE episode (id INTEGER PRIMARY KEY, env_id TEXT, source TEXT, length INTEGER, ended TEXT);
CREATE TABLE frame (episode INTEGER, frame INTEGER, room TEXT, charge INTEGER);
CREATE TABLE step (id INTEGER PRIMARY KEY, episode INTEGER, frame INTEGER, door INTEGER, reward REAL);
"""


def filled(any_thread=True):
    """Return a database with seven episodes."""
    base, rng = sqlite3.connect(":memory:", check_same_thread=not any_thread), np.random.default_rng(11)
    base.executescript(SCHEMA)
    for k, length in enumerate(LENGTHS):
        base.execute(
            "INSERT INTO episode VALUES (?, ?, ?, ?, ?)", (k, f"porter-{k % 3}", LABELS[k % 3], length, ENDS[k % 2])
        )
        room = int(rng.integers(4))
        for frame in range(length + 1):
            base.execute("INSERT INTO frame VALUES (?, ?, ?, ?)", (k, frame, ROOMS[room], 3 - frame // 5))
            if frame < length:
                door = int(rng.integers(3))
                reward = None if rng.random() < 0.3 else float(rng.integers(0, 3))
                base.execute("INSERT INTO step VALUES (NULL, ?, ?, ?, ?)", (k, frame, door, reward))
                room = (room + door) % 4
    return base


class Rooms:
    """Seven episodes of a robot that chooses doors."""

    reward = "COALESCE(s.reward, -1.0)"
    filled_reward = "COALESCE(s.reward, -1.0)"
    total = "SUM"
    following = "b.episode = s.episode AND b.frame = s.frame + 1"
    done = "s.frame = e.length - 1"
    order = "s.frame"
    threshold = ">="
    usable = "e.length > 0"
    distinct = "DISTINCT"
    alike = "a.room = :room AND a.charge = :charge"
    counted = "COUNT(*)"
    present = "episode = :episode AND frame = :frame"
    filters = ("source", "min_return", "replace", "priority")

    def __init__(self):
        self.base = filled()
        self.init()

    # -- the standard's functions --------------------------------------------------------------------------

    def init(self, options={}):  # noqa: B006 (the standard's signature; nothing writes to it)
        given = self.read(options, ("seed", "episode", "frame"), "init")
        seed = given.get("seed")
        self.rng = random.Random(None if seed is None else self.whole(seed, "seed", 0))
        place = {name: self.whole(given.get(name, 0), name, 0) for name in ("episode", "frame")}
        self.now = self.base.execute(
            f"SELECT episode, frame, room, charge FROM frame WHERE {self.present}", place
        ).fetchone()
        if self.now is None:
            raise SourceError(f"init: there is no frame {place}")

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        size = self.size(batch_size)
        given = self.read(extra_info, self.filters, "sample_steps")
        where, values = self.condition(given)
        ids = [
            row[0] for row in self.rows(f"SELECT s.id FROM step s JOIN episode e ON e.id = s.episode {where}", values)
        ]
        return self.table(self.fetched(self.drawn(ids, [1.0] * len(ids), size, given)))

    def sample_trajectories(self, trajectory_size, extra_info={}):  # noqa: B006
        size = self.size(trajectory_size)
        given = self.read(extra_info, self.filters, "sample_trajectories")
        where, values = self.condition(given)
        ids = [row[0] for row in self.rows(f"SELECT e.id FROM episode e {where}", values)]
        weights = [max(self.return_of(e), 0.1) if given.get("priority") else 1.0 for e in ids]
        return [self.trajectory(e) for e in self.drawn(ids, weights, size, given)]

    def get_all_actions(self, extra_info={}):  # noqa: B006
        given = self.read(extra_info, ("source", "min_return"), "get_all_actions")
        where, values = self.condition(given)
        episode, frame, room, charge = self.now
        doors = self.rows(
            f"SELECT {self.distinct} s.door FROM step s JOIN episode e ON e.id = s.episode JOIN frame a "
            f"ON a.episode = s.episode AND a.frame = s.frame {where} AND {self.alike} ORDER BY s.door",
            {**values, "room": room, "charge": charge, "episode": episode},
            may_be_empty=True,
        )
        name = self.rows("SELECT env_id FROM episode WHERE id = :id", {"id": episode})[0][0]
        return {"env_id": name, "frame_no": frame, "action": {"door": np.array([row[0] for row in doors], np.int32)}}

    def statistics(self, extra_info={}):  # noqa: B006
        given = self.read(extra_info, ("kind", "source", "min_return"), "statistics")
        kind = given.pop("kind", "summary")
        if kind not in ("summary", "returns"):
            raise SourceError(f"statistics: kind is {kind!r:.60}, allowed are summary and returns")
        where, values = self.condition(given)
        numbers = [row[0] for row in self.rows(f"SELECT e.id FROM episode e {where}", values)]
        returns = [self.return_of(e) for e in numbers]
        if kind == "returns":
            return {"kind": kind, "episode": numbers, "return": returns, "mean": float(np.mean(returns))}
        joined = f"FROM step s JOIN episode e ON e.id = s.episode {where}"
        steps = self.rows(f"SELECT {self.counted} {joined}", values)[0][0]
        doors = self.rows(f"SELECT s.door, COUNT(*) {joined} GROUP BY s.door", values)
        return {"kind": kind, "episodes": len(numbers), "steps": steps, "doors": {str(k): n for k, n in doors}}

    # -- parts of them -------------------------------------------------------------------------------------

    def read(self, options, allowed, function):
        if not hasattr(options, "items"):
            raise SourceError(f"{function}: options are {options!r:.60}, expected a mapping")
        unknown = [name for name in options if name not in allowed]
        if unknown:
            raise SourceError(f"{function}: option {unknown[0]!r:.60} is unknown, allowed are {', '.join(allowed)}")
        return {name: value for name, value in options.items() if value is not None}

    def whole(self, value, name, low):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
            raise SourceError(f"{name} is {value!r:.60}, expected a whole number from {low}")
        return int(value)

    def size(self, value):
        return self.whole(value, "the number", 1)

    def condition(self, given):
        """Return a clause WHERE for filters, and its values."""
        terms, values = [self.usable], {}
        if "source" in given:
            if not isinstance(given["source"], str | list | tuple):
                raise SourceError(f"source is {given['source']!r:.60}, expected a word or a list of words")
            terms.append("e.source IN (SELECT value FROM json_each(:source))")
            values["source"] = json.dumps(
                [given["source"]] if isinstance(given["source"], str) else list(given["source"])
            )
        if "min_return" in given:
            if type(given["min_return"]) not in (int, float):
                raise SourceError(f"min_return is {given['min_return']!r:.60}, expected a number")
            sum_of = f"(SELECT SUM({self.filled_reward}) FROM step s WHERE s.episode = e.id)"
            terms.append(f"{sum_of} {self.threshold} :min_return")
            values["min_return"] = given["min_return"]
        if given.get("replace", True) not in (True, False) or given.get("priority") not in (None, "return"):
            raise SourceError("replace is True or False, priority is return")
        return f"WHERE {' AND '.join(terms)}", values

    def rows(self, statement, values, may_be_empty=False):
        found = self.base.execute(statement, values).fetchall()
        if not found and not may_be_empty:
            raise SourceError(f"the filters {values} leave nothing")
        return found

    def drawn(self, ids, weights, size, given):
        if given.get("replace", True):
            return self.rng.choices(ids, weights, k=size)
        if size > len(ids):
            raise SourceError(f"replace is False, {size} were asked for, {len(ids)} exist")
        return self.rng.sample(ids, size)

    def fetched(self, ids):
        """Return the rows of steps in the order of their numbers, repeated ones too."""
        found = {row[0]: row for row in self.joined("s.id IN (SELECT value FROM json_each(:ids))", json.dumps(ids))}
        return [found[one] for one in ids]

    def joined(self, where, ids):
        return self.base.execute(
            f"SELECT s.id, e.env_id, s.frame, a.room, a.charge, s.door, {self.reward}, b.room, b.charge, {self.done}, "
            "e.id FROM step s JOIN episode e ON e.id = s.episode "
            f"JOIN frame a ON a.episode = s.episode AND a.frame = s.frame JOIN frame b ON {self.following} "
            f"WHERE {where} ORDER BY s.episode, {self.order}",
            {"ids": ids},
        ).fetchall()

    def table(self, rows):
        """Return Table 5 with a leading axis."""
        index, env_id, frame, room, charge, door, reward, next_room, next_charge, done, episode = zip(
            *rows, strict=True
        )
        return {
            "env_id": np.array(env_id, object),
            "frame_no": np.array(frame, np.int32),
            "observation": {"room": np.array(room, "<U10"), "charge": np.array(charge, np.int32)},
            "action": {"door": np.array(door, np.int32)},
            "reward": np.array(reward, float),
            "next_observation": {"room": np.array(next_room, "<U10"), "charge": np.array(next_charge, np.int32)},
            "done": np.array(done, np.int32),
            "extra_info": {"index": np.array(index) - 1, "episode": np.array(episode)},
        }

    def return_of(self, episode):
        found = self.base.execute(
            f"SELECT {self.total}({self.filled_reward}) FROM step s WHERE s.episode = ?", (episode,)
        )
        return float(found.fetchone()[0])

    def trajectory(self, episode):
        """Return an episode as Table 6."""
        env_id, source, length, ended = self.base.execute(
            "SELECT env_id, source, length, ended FROM episode WHERE id = ?", (episode,)
        ).fetchone()
        return {
            "env_id": env_id,
            "trajectory_id": episode,
            "steps_set": self.table(self.joined("s.episode = :ids", episode)),
            "extra_info": {
                "length": length,
                "return": self.return_of(episode),
                "source": source,
                "terminated": int(ended == "goal"),
                "truncated": int(ended == "time"),
            },
        }


# -- planted faults -----------------------------------------------------------------------------------------------


class RewardsFilledInTwoWays(Rooms):
    """Fill in 0 for a missing reward in steps, and -1 in returns."""

    reward = "COALESCE(s.reward, 0.0)"


class DoneOnlyAtGoals(Rooms):
    """Return 0 as ``done`` at the last step of an episode that time ended."""

    done = "s.frame = e.length - 1 AND e.ended = 'goal'"


class NextOfTheSameRobot(Rooms):
    """Take the next observation from any episode of the same ``env_id``."""

    following = """b.frame = s.frame + 1 AND b.episode = (
        SELECT MAX(other.id) FROM episode other WHERE other.env_id = e.env_id AND other.length > s.frame)"""


class FramesInOrderOfText(Rooms):
    """Sort the steps of a trajectory by the text of their numbers: 0, 1, 10, 11, 2."""

    order = "CAST(s.frame AS TEXT)"


class ThresholdExcluded(Rooms):
    """Leave out episodes whose return equals ``min_return``."""

    threshold = ">"


class OneStepEpisodesAreLost(Rooms):
    """Leave episodes of one step out of everything."""

    usable = "e.length > 1"


class RandomOrderOfTheDatabase(Rooms):
    """Draw with a generator that no seed reaches."""

    def drawn(self, ids, weights, size, given):
        self.rng = random.SystemRandom()
        return super().drawn(ids, weights, size, given)


class RepeatedDrawsCollapse(Rooms):
    """Return a step once that was drawn several times, so that the batch is too short."""

    def fetched(self, ids):
        return super().fetched(sorted(set(ids)))


class RoomsAreCutOff(Rooms):
    """Return the first four letters of the room in batches."""

    def fetched(self, ids):
        return [(*row[:3], row[3][:4], *row[4:7], row[7][:4], *row[8:]) for row in super().fetched(ids)]


class DoorsAsFloats(Rooms):
    """Return doors as float64 in batches, and as int32 elsewhere."""

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        table = super().sample_steps(batch_size, extra_info)
        return {**table, "action": {"door": table["action"]["door"].astype(float)}}


class FrameNumbersOf64Bits(Rooms):
    """Return ``frame_no`` as int64, where Table 5 says int32."""

    def table(self, rows):
        table = super().table(rows)
        return {**table, "frame_no": table["frame_no"].astype(np.int64)}


class ActionsOfAnotherKey(Rooms):
    """Return the actions of Table 5 as ``actions``."""

    def table(self, rows):
        table = super().table(rows)
        table["actions"] = table.pop("action")
        return table


class ActionsRepeat(Rooms):
    """Return an action as often as it occurs."""

    distinct = ""


class ActionsOfTheRoom(Rooms):
    """Return the actions of all states with the same room, whatever the charge."""

    alike = "a.room = :room"


class ActionsOfTheEpisode(Rooms):
    """Return the actions of the present state in the present episode alone."""

    alike = "a.room = :room AND a.charge = :charge AND s.episode = :episode"


class StatisticsOfEverything(Rooms):
    """Describe all data, whatever the filters."""

    def statistics(self, extra_info={}):  # noqa: B006
        super().statistics(extra_info)
        return super().statistics({name: value for name, value in extra_info.items() if name == "kind"})


class ReturnIsMean(Rooms):
    """Give the mean reward as the return of a trajectory."""

    total = "AVG"


class TrajectoryIdsAreTexts(Rooms):
    """Return ``trajectory_id`` as a text, where Table 6 says int32."""

    def trajectory(self, episode):
        return {**super().trajectory(episode), "trajectory_id": f"{episode}"}


class FrameOfAnyEpisode(Rooms):
    """Set the present state by the frame alone, and take the first episode that has it."""

    present = "frame = :frame AND :episode >= 0"


class NothingLeftIsNoError(Rooms):
    """Return an empty list of trajectories where the filters leave nothing."""

    def sample_trajectories(self, trajectory_size, extra_info={}):  # noqa: B006
        try:
            return super().sample_trajectories(trajectory_size, extra_info)
        except SourceError as error:
            if "leave nothing" in str(error):
                return []
            raise


class ExtraInfoMustBeGiven(Rooms):
    """Have no default for ``extra_info`` of sample_steps."""

    def sample_steps(self, batch_size, extra_info):
        return super().sample_steps(batch_size, extra_info)


class OtherNameOfTheSize(Rooms):
    """Call ``trajectory_size`` by another name, so that it can't be given by name."""

    def sample_trajectories(self, count, extra_info={}):  # noqa: B006
        return super().sample_trajectories(count, extra_info)


class MinusOneIsEverything(Rooms):
    """Return all steps for a batch size of -1, as a LIMIT of SQLite does."""

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        if isinstance(batch_size, int) and batch_size < 0:
            return self.table(self.fetched([row[0] for row in self.base.execute("SELECT id FROM step")]))
        return super().sample_steps(batch_size, extra_info)


class SourceLabelMissing(Rooms):
    """Leave the label of the source out of trajectories, which the database has."""

    def trajectory(self, episode):
        table = super().trajectory(episode)
        return {**table, "extra_info": {k: v for k, v in table["extra_info"].items() if k != "source"}}


class StepsWithoutMissingRewards(Rooms):
    """Leave steps whose reward was missing out of the number of steps."""

    counted = "COUNT(s.reward)"


class DrawsRunOut(Rooms):
    """Draw each step once since init, and raise an error when all were drawn."""

    def init(self, options={}):  # noqa: B006
        super().init(options)
        self.used = set()

    def drawn(self, ids, weights, size, given):
        left = [one for one in ids if one not in self.used]
        drawn = super().drawn(left, weights[: len(left)], size, {**given, "replace": False})
        self.used |= set(drawn)
        return drawn


# -- correct and unusual ------------------------------------------------------------------------------------------


class RoomsOfOneThread(Rooms):
    """Be usable in the thread that made the object alone, as connections of SQLite are by default."""

    def __init__(self):
        self.base = filled(any_thread=False)
        self.init()


class RoomsWithoutOptionalKeys(Rooms):
    """Return the keys of Table 5 alone that must be there."""

    def table(self, rows):
        optional = ("next_observation", "done", "extra_info")
        return {name: value for name, value in super().table(rows).items() if name not in optional}


class RoomsOfOneNumber(Rooms):
    """Have the number of steps as the only statistics."""

    def statistics(self, extra_info={}):  # noqa: B006
        return super().statistics(extra_info)["steps"] if extra_info.get("kind") != "returns" else self.refuse()

    def refuse(self):
        raise SourceError("statistics: kind is 'returns', allowed is summary")
