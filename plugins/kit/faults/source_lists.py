"""Source data of a thermostat in lists of plain Python, correct and unusual.

Style: nested lists and numbers of Python in place of arrays, as they come from JSON.
"""

from __future__ import annotations

import random

from hal import SourceError


def made():
    """Return five episodes as lists of (temperature, heater, reward), and the last temperature of each."""
    rng, episodes = random.Random(3), []
    for length in (5, 2, 7, 4, 3):
        temperature, steps = 16 + rng.randrange(4), []
        for _ in range(length):
            heater = rng.randrange(2)
            following = temperature + (1 if heater else -1)
            steps.append((temperature, heater, -abs(following - 18.0), following))
            temperature = following
        episodes.append(steps)
    return episodes


class ThermostatLists:
    """Five episodes of a heater that is on or off; all numbers are in lists."""

    def __init__(self):
        self.episodes = made()
        self.places = [(e, k) for e, steps in enumerate(self.episodes) for k in range(len(steps))]
        self.init()

    def init(self, options={}):  # noqa: B006 (the standard's signature; nothing writes to it)
        self.check(options, ("seed", "episode", "frame"))
        self.rng = random.Random(options.get("seed"))
        self.now = (options.get("episode", 0), options.get("frame", 0))
        if self.now not in self.places:
            raise SourceError(f"init: no step begins at episode and frame {self.now}")

    def sample_steps(self, batch_size, extra_info={}):  # noqa: B006
        self.check_size(batch_size)
        passing = self.passing(extra_info)
        return self.table(self.rng.choices([place for place in self.places if place[0] in passing], k=batch_size))

    def sample_trajectories(self, trajectory_size, extra_info={}):  # noqa: B006
        self.check_size(trajectory_size)
        return [self.trajectory(e) for e in self.rng.choices(self.passing(extra_info), k=trajectory_size)]

    def get_all_actions(self, extra_info={}):  # noqa: B006
        self.check(extra_info, ())
        episode, frame = self.now
        here = self.episodes[episode][frame][0]
        heaters = {step[1] for steps in self.episodes for step in steps if step[0] == here}
        return {"env_id": "thermostat", "frame_no": frame, "action": {"heater": sorted(heaters)}}

    def statistics(self, extra_info={}):  # noqa: B006
        returns = [self.return_of(e) for e in self.passing(extra_info)]
        return {"episodes": len(returns), "mean_return": sum(returns) / len(returns)}

    def check(self, options, allowed):
        for name in options:
            if name not in allowed:
                raise SourceError(f"option {name!r:.60} is unknown, allowed are {', '.join(allowed) or 'none'}")

    def check_size(self, size):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise SourceError(f"the number is {size!r:.60}, expected a whole number from 1")

    def passing(self, options):
        self.check(options, ("min_return",))
        least = options.get("min_return", float("-inf"))
        passing = [e for e in range(len(self.episodes)) if self.return_of(e) >= least]
        if not passing:
            raise SourceError(f"no episode has a return of {least} or more")
        return passing

    def return_of(self, episode):
        return sum(step[2] for step in self.episodes[episode])

    def table(self, places):
        steps = [self.episodes[e][k] for e, k in places]
        return {
            "env_id": ["thermostat"] * len(places),
            "frame_no": [k for _, k in places],
            "observation": {"temperature": [step[0] for step in steps]},
            "action": {"heater": [step[1] for step in steps]},
            "reward": [step[2] for step in steps],
            "next_observation": {"temperature": [step[3] for step in steps]},
            "done": [int(k + 1 == len(self.episodes[e])) for e, k in places],
        }

    def trajectory(self, episode):
        return {
            "env_id": "thermostat",
            "trajectory_id": episode,
            "steps_set": self.table([place for place in self.places if place[0] == episode]),
            "extra_info": {
                "return": self.return_of(episode),
                "length": len(self.episodes[episode]),
                "source": "mixture",
            },
        }
