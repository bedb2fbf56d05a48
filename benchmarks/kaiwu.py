"""Measure Kaiwu workflows: against the same loop written directly, and distributed against one process.

    python benchmarks/kaiwu.py loop                 # ratio of step rates, medians of alternating runs
    python benchmarks/kaiwu.py distributed --seconds 60 --workflows 1

On a quiet machine of two cores: taskset -c 0,1 python benchmarks/kaiwu.py distributed --seconds 120. The first line of
each result is the machine's load at its beginning and end.
"""

import argparse
import functools
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import rlenv_robot as rr
from rlenv_robot.adapters.kaiwu.env import KaiwuEnv
from rlenv_robot.adapters.kaiwu.project import open_project
from rlenv_robot.adapters.kaiwu.run import open_workplace, run_project
from rlenv_robot.adapters.kaiwu.session import Budget
from rlenv_robot.adapters.kaiwu.templates import write_project

TASK = "so101-reach"


def direct(steps, agent=None):
    """Step with our tables, with the project's agent or with the goals held."""
    env = rr.make(TASK)
    table, count, began = env.reset({"seed": 0}), 0, time.process_time()
    while count < steps:
        obs = table["observation"]
        if agent is None:
            action = {"joint_target": obs["joint_goal"]}
        else:
            obs_data = agent.observation_process(obs)
            action = agent.action_process(agent.predict(list_obs_data=[obs_data])[0], obs_data)
        table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
        count += 1
        if table["terminated"] or table["truncated"]:
            table = env.reset()
    rate = steps / (time.process_time() - began)
    env.close()
    return rate


class Counter:
    """Count, as a run does."""

    count = 0

    def stepped(self, count=1):
        self.count += count

    def began_episode(self):
        pass


def kaiwu(steps, agent=None):
    """Step with the document's reset and step, likewise."""
    env, counter = KaiwuEnv(rr.make(TASK), "document", counter=Counter()), 0
    (obs, state), began = env.reset(usr_conf={"seed": 0}), time.process_time()
    while counter < steps:
        if agent is None:
            act = {"joint_target": obs["joint_goal"]}
        else:
            obs_data = agent.observation_process(obs, state)
            act = agent.action_process(agent.predict(list_obs_data=[obs_data])[0], obs_data)
        _, obs, _, terminated, truncated, state = env.step(act)
        counter += 1
        if terminated or truncated:
            obs, state = env.reset(usr_conf={})
    rate = steps / (time.process_time() - began)
    env.close()
    return rate


def measure_loop(runs):
    """Print the ratio of the two loops' rates, run by turns."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder) / "project", TASK)
        project = open_project(Path(folder) / "project")
        with open_workplace(project, Path(folder) / "out") as place:
            (agent,) = place.make_agents(1)
            for name, steps, given in (("goals held, no agent", 6000, None), ("PPO project's agent", 2000, agent)):
                pairs = [(kaiwu(steps, given), direct(steps, given)) for _ in range(runs)]
                ratios = [theirs / ours for theirs, ours in pairs]
                print(
                    f"{name}: {statistics.median(a for a, _ in pairs):.0f} against "
                    f"{statistics.median(b for _, b in pairs):.0f} steps/s, ratio {statistics.median(ratios):.3f} "
                    f"({min(ratios):.3f} to {max(ratios):.3f}, {runs} pairs)"
                )


def make_view(task, counter, style, seed):
    """Make the view in the process of a workflow."""
    return KaiwuEnv(rr.make(task), style, counter=counter, seed=seed)


def measure_distributed(seconds, workflows, algorithm):
    """Print samples learned a second, distributed and in one process, run one after the other."""
    from rlenv_robot.adapters.kaiwu.distributed import run_distributed

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder / "project", TASK, algorithm)
        project = open_project(folder / "project")
        rates, costs = {}, {}
        for number, kind in enumerate(("one process", "distributed", "one process", "distributed")):
            budget, out = Budget(seconds=seconds / 4), folder / f"out{number}"
            if kind == "distributed":
                make = functools.partial(make_view, TASK)
                outcome = run_distributed(project, make, out=out, workflows=workflows, budget=budget)
                counts = outcome.counts
                note = f"{counts.inserted} came, {outcome.learned} learned, {outcome.left} left, {counts.unused} unused"
                busiest = max(outcome.cpu_s["workflow"] / workflows, outcome.cpu_s["learner"])
            else:
                began = time.process_time()
                outcome = run_project(project, rr.make(TASK), out=out, budget=budget, through_pool=True)
                busiest, note = time.process_time() - began, "processor time with imports"
            costs.setdefault(kind, []).append(1e6 * busiest / outcome.steps)
            rate = outcome.steps / outcome.seconds
            rates.setdefault(kind, []).append(rate)
            print(f"{kind}: {rate:.0f} steps/s, {outcome.updates / outcome.seconds:.2f} updates/s ({note})", flush=True)
        ratio = np.mean(rates["distributed"]) / np.mean(rates["one process"])
        print(
            f"ratio {ratio:.2f} by the clock with {workflows} workflows; a busy machine gives two processes more of it"
        )
        one, busiest = (statistics.mean(costs[kind]) for kind in ("one process", "distributed"))
        print(f"processor time of a step: {one:.0f} us in one process, {busiest:.0f} us of the busiest of several")


def load():
    """Return the machine's load and cores."""
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("loop", "distributed"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workflows", type=int, default=1)
    parser.add_argument("--algorithm", choices=("ppo", "dqn"), default="ppo")
    args = parser.parse_args()
    print(load())
    if args.what == "loop":
        measure_loop(args.runs)
    else:
        measure_distributed(args.seconds, args.workflows, args.algorithm)
    print(load())
