"""A stranger's set to a policy by one command, which drives the stranger's simulator (Meta-World's arm with a camera).

Meta-World needs an environment of its own (its MuJoCo is older than ours); writing LeRobot's sets needs LeRobot there:

    python3 -m venv /tmp/mw && /tmp/mw/bin/pip install metaworld==3.1.1 zarr h5py
    /tmp/mw/bin/python benchmarks/metaworld_episodes.py record button-press-topdown-v3 --to zarr --out /tmp/button
    rlenv-robot imitate /tmp/button --out /tmp/button.onnx        # pip install 'rlenv-robot[train,onnx,zarr]'
    python benchmarks/foreign.py /tmp/button button-press-topdown-v3 /tmp/button.onnx --python /tmp/mw/bin/python

Meta-World judges each episode by its own measure of success, within 200 steps, at positions of objects that no
recorded episode had. The same episodes are driven by simple rules and by Meta-World's script. The rules know all
recorded episodes, those too that the policy's training held out:

- ``held``: the hand stays where it is; ``random``: uniform actions.
- ``nearest-frame``: the action of the recorded frame with the nearest state and image (reduced to 24 x 24 pixels).
- ``nearest-episode``: the actions of the recorded episode whose first image is nearest, one after the other.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Listener
from pathlib import Path

import numpy as np

import rlenv_robot as rr
from rlenv_robot.source import SourceData
from rlenv_robot.training.trials import wilson

Rule = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From the step's number, the image, the state and the script's action to the action (4,)."""

SMALL, AT_ONCE, RATE_HZ = 24, 256, 80
BLIND, SEEING = ("held", "random", "expert"), ("nearest-frame", "nearest-episode")
"""Rules for which no image is drawn, and others."""


def reduced(images: np.ndarray) -> np.ndarray:
    """Return images (N, height, width, 3) as vectors of means of areas, (N, 24 * 24 * 3), 0 to 1."""
    step = images.shape[1] // SMALL
    cut = images[:, : SMALL * step, : SMALL * step].reshape(-1, SMALL, step, SMALL, step, 3)
    return (cut.mean((2, 4)) / 255).reshape(len(images), -1).astype(np.float32)


class Recorded:
    """The frames of a set: reduced images, states, actions, and the position of each episode's first frame."""

    def __init__(self, source: SourceData) -> None:
        state = source.table.layout.observation.names[0]
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for begin in range(0, len(source), AT_ONCE):
            positions = np.arange(begin, min(begin + AT_ONCE, len(source)))
            steps = source.steps_at(positions, {"images": {"next": False}})
            (images,) = steps["extra_info"]["images"].values()
            parts.append((reduced(images), steps["observation"][state], steps["action"]["target"]))
        self.images, self.states, self.actions = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.begins = np.unique(source.transitions.spans(np.arange(len(source)))[0])
        self.scale = self.states.std(0).clip(1e-6)
        self.contrast = float(self.images.std(0).mean() * math.sqrt(self.images.shape[1]))

    def nearest_frame(self, step: int, image: np.ndarray, state: np.ndarray, expected: np.ndarray) -> np.ndarray:
        seen = ((self.images - reduced(image[None])) ** 2).sum(1) / self.contrast**2
        felt = (((self.states - state) / self.scale) ** 2).mean(1)
        return self.actions[int((seen + felt).argmin())]

    def nearest_episode(self) -> Rule:
        frame, stop = 0, 0

        def rule(step: int, image: np.ndarray, state: np.ndarray, expected: np.ndarray) -> np.ndarray:
            nonlocal frame, stop
            if step == 0:
                number = int(((self.images[self.begins] - reduced(image[None])) ** 2).sum(1).argmin())
                frame = int(self.begins[number])
                stop = int(self.begins[number + 1]) if number + 1 < len(self.begins) else len(self.actions)
            return self.actions[min(frame + step, stop - 1)]

        return rule


def of_policy(path: Path) -> Rule:
    """Return the rule of a policy's file; ALOHA's ``qvel`` is the change of the state since the step before."""
    policy = rr.load_policy(path)
    cameras = [field.name for field in policy.observation if field.is_image]
    state = next(field.name for field in policy.observation if field.shape == (4,))
    (action,) = policy.action.names
    before = np.zeros(4, np.float32)

    def rule(step: int, image: np.ndarray, seen: np.ndarray, expected: np.ndarray) -> np.ndarray:
        nonlocal before
        if step == 0:
            policy.reset()
            before = seen
        velocity, before = (seen - before) * RATE_HZ, seen
        return policy.act({state: seen, "qvel": velocity, **dict.fromkeys(cameras, image)})[action]

    return rule


@contextmanager
def simulator(python: str, task: str, seed: int) -> Iterator[Connection]:
    """Start the stranger's simulator, and yield the connection to it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "socket"
        with Listener(str(place), "AF_UNIX") as listener:
            script = Path(__file__).with_name("metaworld_episodes.py")
            command = [python, str(script), "drive", task, "--socket", str(place), "--seed", str(seed)]
            process = subprocess.Popen(command)
            with listener.accept() as simulated:
                yield simulated
                simulated.send(None)
        process.wait()


def drive(simulated: Connection, rule: Rule, number: int, sees: bool) -> tuple[bool, int, float]:
    """Drive an episode; return its success, its steps, and the mean time of the rule, seconds."""
    simulated.send((number, sees))
    spent, step = 0.0, 0
    while len(asked := simulated.recv()) == 3:
        began = time.perf_counter()
        action = rule(step, *asked)
        spent += time.perf_counter() - began
        simulated.send(np.asarray(action, np.float32))
        step += 1
    success, steps = asked
    return bool(success), steps, spent / step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set")
    parser.add_argument("task")
    parser.add_argument("policies", type=Path, nargs="*")
    parser.add_argument("--python", required=True, help="an interpreter that has Meta-World")
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--first", type=int, default=0, help="number of the first episode, to share them out")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--rules", nargs="*", choices=(*BLIND, *SEEING), default=(*BLIND, *SEEING))
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    still = np.zeros(4, np.float32)
    known: dict[str, Rule] = {
        "held": lambda step, image, state, expected: still,
        "random": lambda step, image, state, expected: rng.uniform(-1, 1, 4),
        "expert": lambda step, image, state, expected: expected,
    }
    if set(args.rules) & set(SEEING):
        recorded = Recorded(rr.open_source(args.set, keep_last=True))
        known |= {"nearest-frame": recorded.nearest_frame, "nearest-episode": recorded.nearest_episode()}
    rules = {path.name: of_policy(path) for path in args.policies} | {name: known[name] for name in args.rules}
    ends: dict[str, list[tuple[bool, int, float]]] = {name: [] for name in rules}
    with simulator(args.python, args.task, args.seed) as simulated:
        for number in range(args.first, args.first + args.episodes):
            for name, rule in rules.items():
                ends[name].append(drive(simulated, rule, number, name not in BLIND))
    print(f"{args.task}, {args.episodes} episodes, seed {args.seed}")
    for name, some in ends.items():
        hits, steps = sum(end[0] for end in some), np.median([end[1] for end in some])
        low, high = wilson(hits, len(some))
        took = 1e3 * np.median([end[2] for end in some])
        print(f"{name:24} {hits:3} of {len(some)} ({low:.0%} to {high:.0%}), median {steps:.0f} steps, {took:.1f} ms")


if __name__ == "__main__":
    main()
