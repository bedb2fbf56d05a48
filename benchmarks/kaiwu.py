"""Measure Kaiwu workflows: against the same loop written directly, and distributed against one process.

    python benchmarks/kaiwu.py loop                 # ratio of step rates, medians of alternating runs
    python benchmarks/kaiwu.py distributed --seconds 120 --workflows 2

On a quiet machine of two cores: taskset -c 0,1 python benchmarks/kaiwu.py distributed --seconds 120. The first line of
each result is the machine's load at its beginning and end.
"""

import argparse
import functools
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import rlenv_robot as rr
from rlenv_kaiwu.env import KaiwuEnv
from rlenv_kaiwu.project import open_project
from rlenv_kaiwu.run import open_workplace, run_project
from rlenv_kaiwu.session import Budget
from rlenv_kaiwu.templates import write_project

TASK = "so101-reach"
PAIRS = 3


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


class Processes:
    """Sample the processor time of this process and of all that it starts, by their titles, while a block runs."""

    def __init__(self, pause_s=0.2):
        self._pause_s, self._over = pause_s, threading.Event()
        self._samples, self._parents, self._titles = [], {}, {}

    def __enter__(self):
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(self._pause_s):
            self.sample()

    def sample(self):
        """Read /proc once."""
        used = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            pid = int(entry.name)
            self._parents.setdefault(pid, int(rest[1]))  # the first one: an orphan gets another
            self._titles[pid] = title or self._titles.get(pid, "")  # a process that is over has none
            used[pid] = (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK")
        self._samples.append((time.monotonic(), used))

    def seconds(self, lasted):
        """Return the seconds of each kind of process in the last so many seconds in which a learner ran, or we did."""
        learners = {pid for pid in self._titles if self._ours(pid) and self._kind(pid) == "Learner"} or {os.getpid()}
        end = max(at for at, used in self._samples if learners & used.keys())
        inside = [used for at, used in self._samples if end - lasted <= at <= end]
        kinds, last = {}, {}
        for used in inside:
            last |= used  # some end before others
        for pid, seconds in last.items():
            if self._ours(pid):
                kind = self._kind(pid)
                kinds[kind] = kinds.get(kind, 0.0) + seconds - inside[0].get(pid, 0.0)
        return kinds

    def _ours(self, pid):
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = self._parents.get(pid, 0)
        return False

    def _kind(self, pid):
        if pid == os.getpid():
            return "command"
        title = self._titles[pid]
        if title.startswith("ray::"):
            return title.split()[0].removeprefix("ray::").partition(".")[0].strip("_")
        return next((name for name in ("raylet", "gcs_server", "dashboard") if name in title), "Ray's others")


def measure_distributed(seconds, workflows, algorithm):
    """Alternate distributed runs and runs in one process, and print their step rates and processor times."""
    from rlenv_kaiwu.distributed import run_distributed

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder / "project", TASK, algorithm)
        project = open_project(folder / "project")
        rates, pairs = {}, []
        for number in range(2 * PAIRS):
            kind = ("one process", "distributed")[(number + number // 2) % 2]  # A B B A A B ...
            budget, out = Budget(seconds=seconds / (2 * PAIRS)), folder / f"out{number}"
            with Processes() as processes:
                if kind == "distributed":
                    make = functools.partial(make_view, TASK)
                    outcome = run_distributed(project, make, out=out, workflows=workflows, budget=budget)
                    counts = outcome.counts
                    note = f"{counts.inserted} samples came, {outcome.learned} learned, {outcome.left} left"
                    assert counts.inserted == outcome.learned + outcome.left
                else:
                    outcome = run_project(project, rr.make(TASK), out=out, budget=budget, through_pool=True)
                    note = f"{outcome.updates} calls of learn"
                processes.sample()
                spent = processes.seconds(outcome.seconds)
            rates[kind] = outcome.steps / outcome.seconds
            print(f"{kind}: {rates[kind]:.0f} steps/s, {outcome.updates / outcome.seconds:.2f} updates/s ({note})")
            shown = sorted(spent.items(), key=lambda pair: -pair[1])
            whole = sum(spent.values())
            print(
                f"  processor time {whole:.1f} s in {outcome.seconds:.1f} s; us a step: "
                + ", ".join(f"{kind} {1e6 * used / outcome.steps:.0f}" for kind, used in shown), flush=True,
            )  # fmt: skip
            if number % 2:
                pairs.append(rates["distributed"] / rates["one process"])
        shown = ", ".join(f"{ratio:.2f}" for ratio in pairs)
        print(f"ratio by the clock, {workflows} workflows: median {statistics.median(pairs):.2f} of {shown}")


def load():
    """Return the machine's load and cores."""
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("loop", "distributed"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workflows", type=int, default=2)
    parser.add_argument("--algorithm", choices=("ppo", "dqn"), default="ppo")
    args = parser.parse_args()
    print(load())
    if args.what == "loop":
        measure_loop(args.runs)
    else:
        measure_distributed(args.seconds, args.workflows, args.algorithm)
    print(load())
