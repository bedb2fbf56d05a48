"""Chunks of a slow policy: what a delay costs, how much of it is recovered, how large seams are, what a step costs.

    pip install 'rlenv-robot[train]'
    python benchmarks/chunks.py train --task so101-push --out push.pt       # a network, from a script on drawn arms
    python benchmarks/chunks.py compare --task so101-push --network push.pt [--delay 5] [--episodes 100]
    python benchmarks/chunks.py foresee --task so101-push                   # likewise, of a script in a copy
    python benchmarks/chunks.py seams [--chunks 1000]                       # 0.7 s of warm-up, 0.3 s of inference
    python benchmarks/chunks.py served                                      # the same on a served arm, in real time
    python benchmarks/chunks.py cost                                        # an ordinary step, a step from the queue

`compare` runs five ways to execute the same network's chunks over the same episodes, on arms that each episode draws.
In all of them frames pass while the network predicts, except in the first:

- instant: a prediction takes no time
- frames: `ChunkedPolicy`, with chunks merged by counting frames
- naive: asynchronous, and a chunk is executed from its first action when it arrives
- synchronous: the robot is held while the network predicts, and half of each chunk is executed
- synchronous, whole: likewise, and the whole chunk is executed
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import rlenv_robot
from hal import Guard, Spec
from hal.robots.so101 import SO101
from real import Server
from recorder.table.load import load_runs
from rlenv_robot.action_limiter import ActionLimiter, limiter_of
from rlenv_robot.chunk_queue import ChunkCounts
from rlenv_robot.policies.chunked_policy import ChunkedPolicy
from rlenv_robot.policies.chunks import ChunkContext, ChunkPredictor
from rlenv_robot.robot_models import load_robot_model
from rlenv_robot.training.rollout import run_episode
from rlenv_robot.training.trials import conditions, wilson
from rlenv_robot.vector.env import VectorEnvironment

REFILL = 0.5
Arrays = Mapping[str, np.ndarray]


# -- a predictor of chunks -------------------------------------------------------------------------------------


def train(task: str, out: Path, demonstrations: int, length: int, updates: int, seed: int) -> None:
    """Learn chunks from a script that demonstrates on drawn arms, under disturbances (DART)."""
    import torch

    from rlenv_learn.imitation.chunk_network import ChunkFields
    from rlenv_learn.imitation.demonstrations import record_demonstrations
    from rlenv_learn.imitation.learning import learn_chunks, load_windows
    from rlenv_learn.policies.chunks import ChunkExecution
    from rlenv_robot import open_source
    from rlenv_tabletop.scripted import SCRIPTS

    torch.manual_seed(seed), torch.set_num_threads(1)
    begun = time.process_time()
    robots, _ = conditions(task, False, {})
    with tempfile.TemporaryDirectory() as folder:
        recorded = record_demonstrations(
            rlenv_robot.task(task), SCRIPTS[task](), folder, demonstrations, seed=seed, **robots
        )
        fields = ChunkFields(rlenv_robot.task(task), ChunkExecution(length))
        windows = load_windows(open_source(folder), fields, {"success": True})
    network = _network(fields.size, fields.flat.action_size, length)
    for mean in learn_chunks(network, fields, windows, updates, seed=seed):
        trained = mean
    torch.save({"network": trained.state_dict(), "fields": fields.state_dict(), "length": length}, out)
    print(
        f"{task}: {demonstrations} of {recorded} demonstrations succeeded; {len(windows[1])} chunks of {length}, "
        f"{updates} updates, {time.process_time() - begun:.0f} s of processor time"
    )


def _network(size: int, action_size: int, length: int) -> Any:
    """Return three layers of 256 units from a vector to a chunk, with the loss of `learn_chunks`."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                nn.Linear(256, length * action_size),
            )  # fmt: skip

        def forward(self, vectors: torch.Tensor, images: Any) -> torch.Tensor:
            chunk: torch.Tensor = self.layers(vectors[:, -1]).unflatten(1, (length, action_size))
            return chunk

        def loss(self, vectors: Any, images: Any, chunk: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (self(vectors, images) - chunk).abs()[mask].mean()

    return Network()


class NetworkPredictor:
    """The trained network as a `ChunkPredictor`."""

    def __init__(self, task: str, path: Path) -> None:
        import torch

        from rlenv_learn.imitation.chunk_network import ChunkFields
        from rlenv_learn.policies.chunks import ChunkExecution

        torch.set_num_threads(1)
        saved = torch.load(path)
        self.length: int = saved["length"]
        self.fields = ChunkFields(rlenv_robot.task(task), ChunkExecution(self.length))
        self.fields.load_state_dict(saved["fields"])
        self.network = _network(self.fields.size, self.fields.flat.action_size, self.length)
        self.network.load_state_dict(saved["network"])

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept any specs; the task is the one of the training."""

    def reset(self) -> None:
        """Do nothing."""

    def predict(self, observation: Arrays, context: ChunkContext) -> dict[str, np.ndarray]:
        """Return a chunk."""
        import torch

        fields = {name: torch.from_numpy(np.array(value))[None, None] for name, value in observation.items()}
        with torch.no_grad():
            chunk = self.fields.actions(self.network(self.fields.vectors(fields), {}), fields)
        return {name: value[0].numpy() for name, value in chunk.items()}

    def close(self) -> None:
        """Do nothing."""


# -- the two other ways ----------------------------------------------------------------------------------------


class Naive:
    """Asynchronous without alignment: when a chunk arrives, it is executed from its first action."""

    def __init__(self, predictor: ChunkPredictor, limiter: ActionLimiter, delay: int) -> None:
        self._predictor, self._limiter, self._delay = predictor, limiter, delay
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._frame, self._left = 0, list[dict[str, np.ndarray]]()
        self._coming: tuple[int, list[dict[str, np.ndarray]]] | None = None
        self._last: Arrays = {}

    def act(self, observation: Arrays) -> dict[str, np.ndarray]:
        """Return the action of the present frame."""
        frame = self._frame
        self._frame += 1
        if frame == 0:
            self._left = _rows(self._predictor, observation, frame)
        if self._coming is not None and frame >= self._coming[0]:
            self._left, self._coming = self._coming[1], None
        if self._coming is None and len(self._left) <= REFILL * self._predictor.length:
            self._coming = (frame + self._delay, _rows(self._predictor, observation, frame))
        self._last = self._left.pop(0) if self._left else self._limiter.hold(self._last)
        return dict(self._last)


class Synchronous:
    """Hold the robot while the network predicts, then execute a part of the chunk."""

    def __init__(self, predictor: ChunkPredictor, limiter: ActionLimiter, delay: int, share: float) -> None:
        self._predictor, self._limiter, self._delay = predictor, limiter, delay
        self._count = round(share * predictor.length)
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._frame, self._from, self._left = 0, 0, list[dict[str, np.ndarray]]()
        self._last: Arrays = {}

    def act(self, observation: Arrays) -> dict[str, np.ndarray]:
        """Return the action of the present frame."""
        if not self._left:
            self._left = _rows(self._predictor, observation, self._frame)[: self._count]
            self._from = self._frame + (self._delay if self._frame else 0)  # the first one is awaited
        self._last = self._left.pop(0) if self._frame >= self._from else self._limiter.hold(self._last)
        self._frame += 1
        return dict(self._last)


def _rows(predictor: ChunkPredictor, observation: Arrays, frame: int) -> list[dict[str, np.ndarray]]:
    chunk = predictor.predict(observation, ChunkContext(frame, {}, 0))
    return [{name: value[place] for name, value in chunk.items()} for place in range(predictor.length)]


# -- comparison ------------------------------------------------------------------------------------------------


WAYS = ("instant", "frames", "naive", "synchronous", "synchronous, whole")


def compare(task: str, network: Path | None, delay: int, episodes: int, seed: int, out: Path | None) -> None:
    """Print the success of each way, and the share of the delay's cost that counting frames recovers."""
    results = {}
    with ProcessPoolExecutor(len(WAYS), multiprocessing.get_context("spawn")) as pool:
        if network is None:
            runs = {way: pool.submit(foresee_way, way, task, delay, episodes, seed) for way in WAYS}
        else:
            runs = {way: pool.submit(run_way, way, task, network, delay, episodes, seed) for way in WAYS}
        for way, run in runs.items():
            success, distance_mm, notes = run.result()
            results[way] = success
            low, high = wilson(int(success.sum()), len(success))
            print(
                f"{task}  {way:20s} {success.mean():4.0%} of {episodes} ({low:.0%} to {high:.0%})  "
                f"median distance {distance_mm:5.1f} mm  {notes}",
                flush=True,
            )
    share, low, high = recovered(results["instant"], results["frames"], results["naive"])
    print(f"{task}  recovered of the delay's cost: {share:.0%} (95 % of paired bootstraps: {low:.0%} to {high:.0%})")
    if out is not None:
        plain = {name: value.astype(int).tolist() for name, value in results.items()}
        out.write_text(json.dumps({"task": task, "delay": delay, "seed": seed, "success": plain}) + "\n")


def _policy(way: str, predictor: ChunkPredictor, limiter: ActionLimiter, delay: int, specs: tuple[Spec, Spec]) -> Any:
    if way in ("instant", "frames"):
        policy = ChunkedPolicy(predictor, limiter, delay=delay if way == "frames" else 0, refill=REFILL)
        policy.check(*specs)
        return policy
    if way == "naive":
        return Naive(predictor, limiter, delay)
    return Synchronous(predictor, limiter, delay, 1.0 if "whole" in way else 1 - REFILL)


def run_way(way: str, task: str, network: Path, delay: int, episodes: int, seed: int) -> tuple[np.ndarray, float, str]:
    """Return the success of each episode, the median distance at the end, and the counts of chunks."""
    predictor, (robots, _) = NetworkPredictor(task, network), conditions(task, False, {})
    with rlenv_robot.make(task, **robots) as env:
        limiter = limiter_of(env.world)
        assert limiter is not None
        policy = _policy(way, predictor, limiter, delay, (env.observation, env.action))
        outcomes = []
        for episode in range(episodes):
            *_, outcome = run_episode(env, policy, {"seed": seed} if episode == 0 else {})
            assert outcome is not None
            outcomes.append(outcome)
    success = np.array([outcome.success for outcome in outcomes], float)
    distance_mm = float(np.median([outcome.distance_mm for outcome in outcomes]))
    return success, distance_mm, str(policy.totals) if isinstance(policy, ChunkedPolicy) else ""


class Foresight:
    """A script that is rolled out in a copy of each simulation: its chunks are what the script would do.

    This is no policy that one can have, since it knows each drawn arm. It shows what executing chunks alone costs.
    """

    def __init__(self, envs: VectorEnvironment, script: Any, length: int) -> None:
        self._envs, self._script, self.length = envs, script, length
        self._frame, self._chunks = -1, dict[str, np.ndarray]()

    def chunks(self, frame: int) -> dict[str, np.ndarray]:
        """Return the chunks of all environments from the present frame on, name -> (N, K, ...)."""
        if frame != self._frame:
            snapshot, rows = self._envs.snapshot(), list[Arrays]()
            table = self._envs.restore(snapshot)
            for _ in range(self.length):
                chosen = self._script.act(table["observation"])
                action = {field.name: np.clip(chosen[field.name], *field.bounds) for field in self._envs.task.action}
                rows.append(action)
                request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action}
                table, _ = self._envs.step(request)
            self._envs.restore(snapshot)
            self._frame = frame
            self._chunks = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
        return self._chunks


class ForesightOfOne:
    """The chunks of one environment, as a `ChunkPredictor`."""

    def __init__(self, all_of_them: Foresight, number: int) -> None:
        self._all, self._number, self.length = all_of_them, number, all_of_them.length

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept any specs."""

    def reset(self) -> None:
        """Do nothing."""

    def predict(self, observation: Arrays, context: ChunkContext) -> dict[str, np.ndarray]:
        """Return the chunk."""
        return {name: value[self._number] for name, value in self._all.chunks(context.frame_no).items()}

    def close(self) -> None:
        """Do nothing."""


def foresee_way(way: str, task: str, delay: int, episodes: int, seed: int) -> tuple[np.ndarray, float, str]:
    """Return the same as `run_way` for a script that is rolled out in a copy of each simulation."""
    from rlenv_tabletop.scripted import SCRIPTS

    robots, _ = conditions(task, False, {})
    with rlenv_robot.make_vector(task, episodes, seed=seed, threads=1, autoreset="disabled", **robots) as envs:
        foresight, total = Foresight(envs, SCRIPTS[task](), 16), ChunkCounts()
        limiter = ActionLimiter(envs.batch.spec, envs.task.action, envs.task.command, dict)
        specs = envs.task.observation, envs.task.action
        policies = [_policy(way, ForesightOfOne(foresight, one), limiter, delay, specs) for one in range(episodes)]
        table, success, distance = envs.reset({"seed": seed}), np.zeros(episodes), np.zeros(episodes)
        for _ in range(envs.task.steps):
            rows = [
                policy.act({name: value[one] for name, value in table["observation"].items()})
                for one, policy in enumerate(policies)
            ]
            action = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            final = table["extra_info"].get("final")
            if final is not None:
                success[final["index"]] = final["success"]
                distance[final["index"]] = final["metrics"]["distance_mm"]
    for policy in policies:
        if isinstance(policy, ChunkedPolicy):
            total.add(policy.totals)
    return success, float(np.median(distance)), str(total) if total.chunks else ""


def recovered(instant: np.ndarray, frames: np.ndarray, naive: np.ndarray) -> tuple[float, float, float]:
    """Return the recovered share of what the delay costs, and its interval over draws of the episodes."""
    rows = np.random.default_rng(0).integers(len(instant), size=(10_000, len(instant)))
    cost = (instant - naive)[rows].mean(1)
    shares = (frames - naive)[rows].mean(1)[cost > 0] / cost[cost > 0]
    share = (frames - naive).mean() / (instant - naive).mean() if instant.mean() > naive.mean() else np.nan
    low, high = np.percentile(shares, (2.5, 97.5)) if len(shares) else (np.nan, np.nan)
    return float(share), float(low), float(high)


# -- seams -----------------------------------------------------------------------------------------------------

_STEP = 4.0 / 30.0
"""The step of the SO-101's guard, rad: 4 rad/s at 30 Hz."""
_COUNT = 5e-5
"""Change of the gripper's goal from a frame to the next one, rad, by which an action shows its frame."""


class Jumping:
    """A predictor whose chunks disagree: each is a wave beside the last one, by up to 0.4 rad in each joint.

    The goal of the gripper shows the frame for which an action was predicted.
    """

    length = 30

    def __init__(self, warm_up_s: float = 0.0, inference_s: float = 0.0) -> None:
        self._rng, self._home = np.random.default_rng(0), np.array(SO101.home["joint_target"])
        self._waits = iter([warm_up_s])
        self._inference_s = inference_s

    def check(self, observation: Spec, action: Spec) -> None:
        """Accept any specs."""

    def reset(self) -> None:
        """Do nothing."""

    def predict(self, observation: Arrays, context: ChunkContext) -> dict[str, np.ndarray]:
        """Return a chunk after the time that a prediction takes."""
        time.sleep(next(self._waits, self._inference_s))
        frames = context.frame_no + 1 + np.arange(self.length)
        goals = self._home + self._rng.uniform(-0.4, 0.4, 6) + 0.1 * np.sin(0.05 * frames)[:, None]
        goals[:, 5] = _COUNT * frames
        low, high = SO101.commands["joint_target"].bounds
        return {"joint_target": np.clip(goals, low, high).astype(np.float32)}

    def close(self) -> None:
        """Do nothing."""


def seams(chunks: int) -> None:
    """Record chunks with a virtual delay of 0.3 s, and judge the log."""
    with tempfile.TemporaryDirectory() as folder:
        _record(folder, Jumping(), "sim", chunks, delay=9)
        judge(folder)


def served(chunks: int) -> None:
    """Record chunks on a served arm in real time, with 0.7 s of warm-up and 0.3 s of inference, and judge the log."""
    context, ready = multiprocessing.get_context("spawn"), multiprocessing.get_context("spawn").Queue()
    end = context.Event()
    process = context.Process(target=_serve, args=(ready, end))
    process.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _record(folder, Jumping(0.7, 0.3), ready.get(timeout=60), chunks, delay=None)
            judge(folder)
    finally:
        end.set()
        process.join(30)


def _serve(ready: Any, end: Any) -> None:
    robot = load_robot_model("so101").make_served_simulation("sim")
    with Server(Guard(robot), watchdog_s=2.0, paced_by_robot=True) as server:  # a busy machine delays the client
        ready.put(server.address)
        end.wait(3600)


def _record(folder: str, predictor: ChunkPredictor, robot: str, chunks: int, delay: int | None) -> None:
    settings: dict[str, Any] = {"steps": 1_000_000, "tolerance_m": 1e-9}  # an episode that does not end
    with rlenv_robot.make("so101-reach", robot, record=folder, answers=True, **settings) as env:
        policy = ChunkedPolicy(predictor, limiter_of(env.world), delay=delay)
        policy.check(env.observation, env.action)
        begun = time.perf_counter()
        for frames, outcome in enumerate(run_episode(env, policy, {"seed": 0}), 1):  # noqa: B007
            if outcome is not None:
                print(f"the episode ended: {outcome.end}")
            if policy.totals.chunks >= chunks:
                break
        seconds = time.perf_counter() - begun
    print(f"{frames} frames in {seconds:.1f} s ({frames / seconds:.1f} Hz); {policy.totals}")
    policy.close()


def judge(folder: str) -> None:
    """Print what a log shows: seams, and whether each action was executed in the frame for which it was predicted."""
    rows = load_runs(Path(folder)).rows[1:]
    action, answers = rows["action_joint_target"].astype(float), rows["answers"]
    change = np.abs(np.diff(action, axis=0, prepend=action[:1])).max(axis=1) / _STEP
    seam, held = np.append(False, answers[1:] != answers[:-1]), answers < 0
    limited = change > 1 - 1e-3
    wrong = np.abs(action[:, 5] / _COUNT - rows["frame_no"]) > 0.1
    free = ~limited & ~held
    print(
        f"log: {len(rows)} frames, {seam.sum()} seams; largest change at a seam {change[seam].max():.4f} guard steps, "
        f"in other frames {change[~seam].max():.4f}; {held.sum()} frames held; age of the observation "
        f"{(rows['frame_no'] - answers)[~held].max()} frames at most; {(wrong & free).sum()} of {free.sum()} frames "
        f"without a limit have another frame's action; frames in which the guard's limit acted in addition: "
        f"{(np.abs(rows['applied_joint_target'] - action) > 1e-5).any(axis=1).sum()}"
    )


# -- cost ------------------------------------------------------------------------------------------------------


def cost(rounds: int = 15, steps: int = 2000) -> None:
    """Print the time of an ordinary step and of a step from the queue, on a simulated SO-101."""
    with rlenv_robot.make("so101-reach", steps=1_000_000) as env:
        home = np.array(SO101.home["joint_target"], np.float32)
        chunk = np.repeat(home[None], 50, axis=0)
        times = []
        for _ in range(rounds):
            table, begun = env.reset({"seed": 0}), time.process_time()
            for _ in range(steps):
                table, _ = env.step(
                    {"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"joint_target": home}}
                )
            ordinary, table = time.process_time() - begun, env.reset({"seed": 0})
            begun = time.process_time()
            for number in range(steps):
                frame = table["frame_no"]
                request = {"env_id": env.env_id, "frame_no": frame, "first_frame": frame + 1,
                           "action": {} if number % 25 else {"joint_target": chunk}}  # fmt: skip
                table, _ = env.step(request)
            times.append((ordinary, time.process_time() - begun))
    names = ("ordinary", "from a chunk of 50, merged every 25 frames")
    for name, quartiles in zip(names, np.array(times).T, strict=True):
        low, middle, high = np.percentile(quartiles / steps * 1e6, (25, 50, 75))
        print(f"step {name}: {middle:.1f} us ({low:.1f} to {high:.1f}), processor time")


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurement", choices=("train", "compare", "foresee", "seams", "served", "cost"))
    parser.add_argument("--task", default="so101-push")
    parser.add_argument("--network", type=Path, default=Path("chunks.pt"))
    parser.add_argument("--out", type=Path)
    for name, value in {
        "demonstrations": 150, "length": 16, "updates": 6000, "seed": 0, "delay": 5, "episodes": 100, "chunks": 1000,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}", flush=True)
    if args.measurement == "train":
        train(args.task, args.out or args.network, args.demonstrations, args.length, args.updates, args.seed)
    elif args.measurement == "foresee":
        compare(args.task, None, args.delay, args.episodes, 1_000_000 + args.seed, args.out)
    elif args.measurement == "compare":
        compare(args.task, args.network, args.delay, args.episodes, 1_000_000 + args.seed, args.out)
    elif args.measurement == "cost":
        cost()
    else:
        {"seams": seams, "served": served}[args.measurement](args.chunks)


if __name__ == "__main__":
    main()
