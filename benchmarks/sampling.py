"""Time of a batch from the source data beside a bare gather of the same rows, and beside other buffers.

All measure the same million transitions in turns in one run: 42 + 7 float32, a reward and a flag. Buffers that are
not installed are left out. `--rows 100000000` measures a table that is mapped from disk, and resident memory.

    python benchmarks/sampling.py [--rounds 7] [--calls 300] [--rows 1000000] [--folder /tmp]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData

BATCH, LENGTH = 256, 200
OBSERVATION, ACTION = 42, 7
Call = Callable[[], Any]


def layout(observation: int, action: int) -> FrameLayout:
    return FrameLayout(Spec("o", (Field("state", (observation,)),)), Spec("a", (Field("joint_target", (action,)),)))


def fill(rows: np.ndarray) -> Table:
    """Episodes of 200 steps, written block by block, so that the rows may be larger than memory."""
    length = LENGTH + 1
    count = len(rows) // length
    block, rng = 1000 * length, np.random.default_rng(0)
    frame_no = np.tile(np.arange(length), 1000)
    for begin in range(0, count * length, block):
        part = rows[begin : min(begin + block, count * length)]
        frames = frame_no[: len(part)]
        part["frame_no"], part["acted"], part["truncated"] = frames, frames > 0, frames == LENGTH
        part["observation_state"] = rng.normal(size=(len(part), 1))
        part["reward"] = rng.normal(size=len(part))
    starts = np.arange(count) * length
    records = tuple({"env_id": "bench"} for _ in range(count))
    sizes = [rows.dtype[f"{name}"].shape[0] for name in ("observation_state", "action_joint_target")]
    return Table(layout(*sizes), rows, starts, starts + length, records, "the benchmark")


def floor(count: int) -> Call:
    """A packed gather of row and next row."""
    rows = np.zeros(count, [("o", "f4", OBSERVATION), ("a", "f4", ACTION), ("r", "f8"), ("d", "u1")])
    rows["o"] = 1
    rng = np.random.default_rng(0)

    def call() -> Any:
        index = rng.integers(0, count - 1, BATCH)
        return rows.take(index), rows.take(index + 1)

    return call


def ours(data: SourceData) -> Iterator[tuple[str, Call]]:
    rng = np.random.default_rng(0)
    request = {"priority": "td_error", "alpha": 0.6, "beta": 0.4}
    size = 1 << 20
    for begin in range(0, len(data), size):
        index = np.arange(begin, min(begin + size, len(data)))
        data.update_priorities(index, np.abs(rng.normal(size=len(index))))
    errors = np.abs(rng.normal(size=BATCH))

    def learn() -> None:
        batch = data.sample_steps(BATCH, request)
        data.update_priorities(batch["extra_info"]["index"], errors)

    yield "ours, uniform", lambda: data.sample_steps(BATCH)
    yield "ours, prioritised with weights", lambda: data.sample_steps(BATCH, request)
    yield "ours, prioritised with weights and update", learn
    yield "ours, n-step of 3", lambda: data.sample_steps(BATCH, {"n_step": 3})
    yield "ours, chunk of 16 actions", lambda: data.sample_steps(BATCH, {"chunk": 16})
    yield "ours, stack of 4 frames", lambda: data.sample_steps(BATCH, {"stack": 4})


def loader(data: SourceData) -> Iterator[tuple[str, Call]]:
    """Batches of PyTorch's DataLoader in this process, plain and with chunks."""
    from rlenv_learn.torch_data import make_loader

    plain, chunks = (endless(make_loader(data, BATCH, options)) for options in (None, {"chunk": 16}))
    yield "ours, DataLoader", lambda: next(plain)
    yield "ours, DataLoader with chunks of 16", lambda: next(chunks)


def endless(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


def cpprb(data: dict[str, np.ndarray]) -> Iterator[tuple[str, Call]]:
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    fields: dict[str, Any] = {
        "obs": {"shape": OBSERVATION}, "act": {"shape": ACTION}, "rew": {}, "next_obs": {"shape": OBSERVATION},
        "done": {},
    }  # fmt: skip
    plain, ranked = ReplayBuffer(len(data["rew"]), fields), PrioritizedReplayBuffer(len(data["rew"]), fields, alpha=0.6)
    errors = np.abs(np.random.default_rng(0).normal(size=len(data["rew"])))
    plain.add(**data)
    ranked.add(**data, priorities=errors)

    def learn() -> None:
        ranked.update_priorities(ranked.sample(BATCH, beta=0.4)["indexes"], errors[:BATCH])

    yield "cpprb, uniform", lambda: plain.sample(BATCH)
    yield "cpprb, prioritised with weights", lambda: ranked.sample(BATCH, beta=0.4)
    yield "cpprb, prioritised with weights and update", learn


def tianshou(data: dict[str, np.ndarray]) -> Iterator[tuple[str, Call]]:
    from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

    count = len(data["rew"])
    flags = {"terminated": np.zeros(count, bool), "truncated": data["done"].astype(bool), "done": data["done"] > 0}
    batch = Batch(obs=data["obs"], act=data["act"], rew=data["rew"], obs_next=data["next_obs"], info={}, **flags)
    errors = np.abs(np.random.default_rng(0).normal(size=count))
    plain, ranked = ReplayBuffer(count), PrioritizedReplayBuffer(count, alpha=0.6, beta=0.4)
    for buffer in (plain, ranked):
        buffer.set_batch(batch)
        buffer._size = count  # adding a million one by one takes minutes, and the samples are the same
    ranked.update_weight(np.arange(count), errors)

    def learn() -> None:
        ranked.update_weight(ranked.sample(BATCH)[1], errors[:BATCH])

    yield "tianshou, uniform", lambda: plain.sample(BATCH)
    yield "tianshou, prioritised with weights", lambda: ranked.sample(BATCH)
    yield "tianshou, prioritised with weights and update", learn


def stable_baselines3(data: dict[str, np.ndarray]) -> Iterator[tuple[str, Call]]:
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import ReplayBuffer

    count = len(data["rew"])
    boxes = [Box(-1, 1, (size,), np.float32) for size in (OBSERVATION, ACTION)]
    buffer = ReplayBuffer(count, *boxes, device="cpu")
    buffer.observations[:, 0], buffer.next_observations[:, 0] = data["obs"], data["next_obs"]
    buffer.full = True
    yield "stable-baselines3, uniform", lambda: buffer.sample(BATCH)


def torchrl(data: dict[str, np.ndarray]) -> Iterator[tuple[str, Call]]:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    torch.set_num_threads(1)
    count = len(data["rew"])
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(count), batch_size=BATCH)
    buffer.extend(TensorDict({name: torch.from_numpy(value) for name, value in data.items()}, [count]))
    yield "torchrl, uniform", buffer.sample


def minari(folder: Path, episodes: int = 200) -> Iterator[tuple[str, Call]]:
    """Whole episodes of 200 steps, 8 at a time, from disk as Minari keeps them."""
    import os

    from gymnasium.spaces import Box

    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())
    from minari import create_dataset_from_buffers
    from minari.data_collector import EpisodeBuffer

    rng = np.random.default_rng(0)
    buffers = [
        EpisodeBuffer(
            observations=rng.normal(size=(LENGTH + 1, OBSERVATION)).astype(np.float32),
            actions=rng.normal(size=(LENGTH, ACTION)).astype(np.float32),
            rewards=rng.normal(size=LENGTH).tolist(),
            terminations=[False] * LENGTH,
            truncations=[False] * (LENGTH - 1) + [True],
        )
        for _ in range(episodes)
    ]
    spaces = [Box(-np.inf, np.inf, (size,), np.float32) for size in (OBSERVATION, ACTION)]
    dataset = create_dataset_from_buffers(
        "bench/rows-v0", buffers, observation_space=spaces[0], action_space=spaces[1], algorithm_name="none",
        author="bench", author_email="bench@example.org", code_permalink="none", description="none", eval_env=None,
    )  # fmt: skip
    yield "minari, 8 trajectories", lambda: dataset.sample_episodes(8)


def microseconds(call: Call, calls: int) -> float:
    """Median of single calls."""
    taken = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - began)
    return statistics.median(taken) / 1e3


def resident_mb() -> dict[str, float]:
    """Memory of this process: its own, and that of mapped files, which the system takes back when it needs it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return {name: int(value) / 1024 for name, value in found.items()}


def show(figures: dict[str, list[float]], base: str) -> None:
    unit = statistics.median(figures[base])
    print(f"{'median, quartiles, us':46} {'median':>8} {'lower':>8} {'upper':>8} {'/ ' + base:>10}")
    for name, values in figures.items():
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        print(f"{name:46} {middle:8.1f} {low:8.1f} {high:8.1f} {middle / unit:10.2f}")


def in_turns(calls: dict[str, Call], rounds: int, number: int) -> dict[str, list[float]]:
    for call in calls.values():
        microseconds(call, 100)
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):  # in turns, so that a busy machine hurts all alike
        for name, call in calls.items():
            figures[name].append(microseconds(call, number))
    return figures


def at_hand(name: str, make: Callable[[], Iterator[tuple[str, Call]]]) -> dict[str, Call]:
    try:
        return dict(make())
    except ImportError as error:
        print(f"left out {name}: {error}")
        return {}


def small(options: argparse.Namespace, folder: Path) -> None:
    """In memory, beside the others."""
    table = fill(layout(OBSERVATION, ACTION).spec.rows(options.rows // LENGTH * (LENGTH + 1)))
    source = SourceData(table)
    source.init({"seed": 0})
    calls = {"floor": floor(len(table.rows)), **dict(ours(source))}
    rows, index = table.rows, source.transitions.row(np.arange(len(source)))
    data = {
        "obs": rows["observation_state"][index],
        "act": rows["action_joint_target"][index + 1],
        "rew": rows["reward"][index + 1].astype(np.float32),
        "next_obs": rows["observation_state"][index + 1],
        "done": rows["truncated"][index + 1].astype(np.float32),
    }
    calls |= at_hand("PyTorch", lambda: loader(source))
    for peer in (cpprb, tianshou, stable_baselines3, torchrl):
        calls |= at_hand(peer.__name__, lambda peer=peer: peer(data))  # type: ignore[misc]
    show(in_turns(calls, options.rounds, options.calls), "floor")
    whole = {"ours, 8 trajectories": lambda: source.sample_trajectories(8), **at_hand("minari", lambda: minari(folder))}
    show(in_turns(whole, options.rounds, max(options.calls // 10, 10)), "ours, 8 trajectories")


def large(options: argparse.Namespace, folder: Path) -> None:
    """Mapped from disk: 8 + 2 numbers a row, so that a hundred million of them fit the disk."""
    spec = layout(8, 2).spec
    count = options.rows // LENGTH * (LENGTH + 1)
    print(f"writing {count * spec.row_dtype.itemsize / 1e9:.1f} GB to {folder}")
    rows = np.memmap(folder / "rows", spec.row_dtype, "w+", shape=(count,))
    table = fill(rows)
    rows.flush()
    began = time.perf_counter()
    source = SourceData(table)
    source.init({"seed": 0})
    print(f"opened in {time.perf_counter() - began:.1f} s, {resident_mb()}")
    calls = dict(ours(source))
    show(in_turns(calls, options.rounds, options.calls), "ours, uniform")
    print(f"resident MB: {resident_mb()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=300, help="a round")
    parser.add_argument("--rows", type=int, default=1_000_000, help="transitions; from 10 million on, mapped")
    parser.add_argument("--folder", type=Path, help="where files lie meanwhile")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        (small if options.rows < 10_000_000 else large)(options, Path(folder))


if __name__ == "__main__":
    main()
