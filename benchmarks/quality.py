"""Plant faults of cameras and timing into the videos of good data sets, and count what `data check` finds of them.

Without --set, two sets are rendered: an SO-101 with two cameras, as sharp 30 Hz H.264, and as noisy 15 Hz MPEG-4. Each
fault is planted alone, in two episodes of a copy of the set, by decoding and encoding their videos. The table has a row
for each fault: in how many of the planted episodes a finding of the right kind was found, what else was found in them,
and how many findings other episodes had.

    python benchmarks/quality.py [--set LEROBOT_SET ...] [--faults black,frozen] [--episodes 12]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import av
import cv2
import numpy as np

from recorder.images.sources import ImageSources
from recorder.table.table import Table, VideoSpan
from rlenv_curate.checks.image_pass import check_images, read_cameras
from rlenv_curate.checks.table import DataSet, Finding
from rlenv_robot.data.folder import read_folder

Film = dict[str, np.ndarray]
"""Camera -> the frames of an episode, uint8 (N, H, W, 3), RGB."""


class Fault(NamedTuple):
    """A fault: the kinds by which it counts as found, and the function that plants it."""

    kinds: tuple[str, ...]
    plant: Callable[[Film, np.random.Generator], Film]


# ---- faults ----


def part_of(frames: np.ndarray) -> slice:
    """Return the middle of an episode, a quarter of it."""
    return slice(len(frames) * 3 // 8, len(frames) * 5 // 8)


def in_first(change: Callable[[np.ndarray, np.random.Generator], np.ndarray], part: bool = False) -> Any:
    """Make a function that changes the first camera, in the whole episode or in part of it."""

    def plant(film: Film, rng: np.random.Generator) -> Film:
        name = next(iter(film))
        frames = film[name].copy()
        span = part_of(frames) if part else slice(None)
        frames[span] = change(frames[span], rng)
        return {**film, name: frames}

    return plant


def black(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.zeros_like(frames)


def frozen(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.repeat(frames[:1], len(frames), 0)


def over(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.clip(frames.astype(np.float32) * 2.2 + 40, 0, 255).astype(np.uint8)


def under(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return (frames * 0.2).astype(np.uint8)


def blurred(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    sigma = frames.shape[2] / 160
    return np.stack([cv2.GaussianBlur(frame, (0, 0), sigma) for frame in frames])


def moved(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return shifted(frames, np.tile([0.04, 0.03], (len(frames), 1)))


def shaken(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return shifted(frames, rng.normal(0, 0.025, (len(frames), 2)))


def shifted(frames: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return frames that are displaced by shares of their width; edges are repeated."""
    height, width = frames.shape[1:3]
    moves = [np.array([[1, 0, x * width], [0, 1, y * width]], np.float32) for x, y in by]
    pairs = zip(frames, moves, strict=True)
    return np.stack([cv2.warpAffine(f, m, (width, height), borderMode=cv2.BORDER_REPLICATE) for f, m in pairs])


def bgr(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return frames[..., ::-1]


def lagged(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return frames[np.maximum(np.arange(len(frames)) - 7, 0)]


def doubled(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A third of the frames repeat the one before; the next one is in its place again."""
    index = np.arange(len(frames))
    index[1:][rng.random(len(frames) - 1) < 0.3] -= 1
    return frames[index]


def dropped(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Four frames are lost in each of many places, and the last frame fills up the end."""
    index = np.arange(len(frames))
    for at in rng.choice(len(frames) // 10, len(frames) // 24, replace=False) * 10:
        index = index[~np.isin(index, np.arange(at, at + 4))]
    index = np.concatenate([index, np.full(len(frames) - len(index), index[-1])])
    return frames[index]


def lost(count: int) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Frames are lost at three places, and the last frame fills up the end."""

    def change(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        index, length = np.arange(len(frames)), len(frames) // 4
        for part in range(3):
            at = part * length + int(rng.integers(length // 4, length - count))
            index = index[~np.isin(index, np.arange(at, at + count))]
        return frames[np.concatenate([index, np.full(len(frames) - len(index), index[-1])])]

    return change


def held(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Four frames are lost in each of many places, where the frame before stays instead."""
    index = np.arange(len(frames))
    for at in rng.choice(len(frames) // 10 - 1, len(frames) // 24, replace=False) * 10 + 5:
        index[at : at + 4] = at - 1
    return frames[index]


def swapped(part: bool) -> Callable[[Film, np.random.Generator], Film]:
    def plant(film: Film, _: np.random.Generator) -> Film:
        (one, first), (other, second) = list(film.items())[:2]
        span = part_of(first) if part else slice(None)
        film = {one: first.copy(), other: second.copy()}
        film[one][span], film[other][span] = resized(second[span], first), resized(first[span], second)
        return film

    return plant


def resized(frames: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.stack([cv2.resize(frame, like.shape[2:0:-1]) for frame in frames])


FAULTS: Mapping[str, Fault] = {
    "black": Fault(("blank",), in_first(black)),
    "black, a part": Fault(("blank",), in_first(black, True)),
    "frozen": Fault(("frozen",), in_first(frozen)),
    "frozen, a part": Fault(("frozen",), in_first(frozen, True)),
    "over-exposed": Fault(("exposure",), in_first(over)),
    "over-exposed, a part": Fault(("exposure",), in_first(over, True)),
    "under-exposed": Fault(("exposure",), in_first(under)),
    "blurred": Fault(("blurred",), in_first(blurred)),
    "blurred, a part": Fault(("blurred",), in_first(blurred, True)),
    "swapped": Fault(("swapped",), swapped(False)),
    "swapped, a part": Fault(("swapped",), swapped(True)),
    "moved": Fault(("moved",), in_first(moved)),
    "moved, a part": Fault(("moved", "shaken"), in_first(moved, True)),
    "shaken": Fault(("shaken", "moved"), in_first(shaken)),
    "shaken, a part": Fault(("shaken", "moved"), in_first(shaken, True)),
    "red and blue": Fault(("colour",), in_first(bgr)),
    "lagged": Fault(("lag",), in_first(lagged)),
    "doubled": Fault(("doubled",), in_first(doubled)),
    "doubled, a part": Fault(("doubled",), in_first(doubled, True)),
    "dropped": Fault(("dropped", "lag"), in_first(dropped)),
    "6 dropped at three places": Fault(("dropped", "lag"), in_first(lost(6))),
    "dropped and held": Fault(("dropped", "doubled", "frozen"), in_first(held)),
}

# ---- sets ----


def render(root: Path, seed: int, fps: int, codec: str, noise: float, episodes: int = 10, seconds: float = 9.0) -> Path:
    """Render an SO-101 whose joints move smoothly, seen by two cameras, as a LeRobot 2.1 data set."""
    from rlenv_vision.so101_looks import so101_cube_textured
    from sim.rendering.camera import Camera

    rng, model = np.random.default_rng(seed), so101_cube_textured()
    cameras = {name: Camera(model, name, 160, 120) for name in ("overhead", "view")}
    names = [f"j{number}.pos" for number in range(6)]
    states = [motion(rng, round(seconds * fps), fps) for _ in range(episodes)]
    for episode, state in enumerate(states):
        light = rng.uniform(0.94, 1.06)
        positions = np.tile(start_of(model), (len(state), 1))
        positions[:, 6:8] += rng.uniform(-0.04, 0.04, 2)
        film = {}
        for name, camera in cameras.items():
            late = np.maximum(np.arange(len(state)) - 1, 0)
            drawn = []
            for number in late:
                position = positions[number].copy()
                position[:6] = state[number]
                drawn.append(camera.render(position).copy())
            film[name] = np.clip(
                np.stack(drawn) * light + rng.normal(0, noise, (len(drawn), 120, 160, 3)), 0, 255
            ).astype(np.uint8)
        for name, frames in film.items():
            encode(root / f"videos/chunk-000/observation.images.{name}/episode_{episode:06d}.mp4", frames, fps, codec)
    write_lerobot(root, states, names, list(cameras), fps)
    return root


def start_of(model: Any) -> np.ndarray:
    return np.array(model.model.qpos0)


def motion(rng: np.random.Generator, count: int, fps: int) -> np.ndarray:
    """Return joint positions, (count, 6) in rad, that go from pose to pose with rests, as a person moves an arm."""
    targets, at = rng.uniform(-0.8, 0.8, (count, 6)), 0
    out, here = np.zeros((count, 6)), rng.uniform(-0.5, 0.5, 6)
    while at < count:
        length = int(fps * rng.uniform(0.5, 1.4))
        phase = np.linspace(0, 1, length)[:, None]
        part = here + (targets[at] - here) * (10 * phase**3 - 15 * phase**4 + 6 * phase**5)
        rest = np.repeat(part[-1:], int(fps * rng.uniform(0, 0.4)), 0)
        part = np.concatenate([part, rest])[: count - at]
        out[at : at + len(part)] = part
        here, at = targets[at], at + len(part)
    return out + rng.normal(0, 5e-4, out.shape)


def write_lerobot(root: Path, states: list[np.ndarray], names: list[str], cameras: list[str], fps: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    joints = {"dtype": "float32", "shape": [6], "names": names}
    image = {"dtype": "video", "shape": [120, 160, 3], "names": ["height", "width", "channels"]}
    numbers = ("frame_index", "episode_index", "index", "task_index")
    scalars = {name: {"dtype": "int64", "shape": [1]} for name in numbers}
    features = {
        "action": joints,
        "observation.state": joints,
        "timestamp": {"dtype": "float32", "shape": [1]},
        **scalars,
    }
    features |= {f"observation.images.{name}": image for name in cameras}
    total = sum(map(len, states))
    info = {
        "codebase_version": "v2.1", "robot_type": "so101", "total_episodes": len(states), "total_frames": total,
        "total_tasks": 1, "total_videos": len(states) * len(cameras), "total_chunks": 1, "chunks_size": 1000,
        "fps": fps,
        "splits": {"train": f"0:{len(states)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features,
    }  # fmt: skip
    (root / "meta").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    (root / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "move"}) + "\n")
    lines = [json.dumps({"episode_index": e, "tasks": ["move"], "length": len(s)}) for e, s in enumerate(states)]
    (root / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    (root / "meta/episodes_stats.jsonl").write_text("")
    begin = 0
    for episode, state in enumerate(states):
        count = len(state)
        action = np.concatenate([state[2:], state[-1:], state[-1:]])
        columns = {
            "action": list(action.astype(np.float32)), "observation.state": list(state.astype(np.float32)),
            "timestamp": (np.arange(count) / fps).astype(np.float32), "frame_index": np.arange(count),
            "episode_index": np.full(count, episode), "index": begin + np.arange(count),
            "task_index": np.zeros(count, int),
        }  # fmt: skip
        pq.write_table(pa.table(columns), root / f"data/chunk-000/episode_{episode:06d}.parquet")
        begin += count


def encode(path: Path, frames: np.ndarray, fps: float, codec: str) -> None:
    options = {"libx264": {"crf": "25", "preset": "veryfast"}, "mpeg4": {"qscale": "4"}}.get(codec, {})
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=round(fps), options=options)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        if codec == "mpeg4":
            stream.codec_context.qmin, stream.codec_context.qmax = 2, 5
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        file.mux(stream.encode())


def decode(span: VideoSpan) -> np.ndarray:
    with av.open(str(span.file)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


# ---- the judge ----


def spans_of(table: Table) -> dict[int, dict[str, VideoSpan]]:
    """Return the videos of each episode that has one file a camera: index -> camera -> span."""
    sources = ImageSources(table)
    numbers = {int(info.get("episode", -1)): at for at, info in enumerate(table.episodes)}
    found: dict[int, dict[str, VideoSpan]] = {}
    source = sources.at(sources.where(0))
    for span in () if source is None else source.videos():
        if span.seconds == 0 and span.file.is_file() and span.episode in numbers:
            found.setdefault(numbers[span.episode], {})[span.camera] = span
    return found


def copy_with(root: Path, to: Path, replaced: Mapping[Path, np.ndarray], fps: float) -> None:
    """Copy a data set by links, but for the videos that are encoded anew."""
    for path in root.rglob("*"):
        target = to / path.relative_to(root)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path in replaced:
            encode(target, replaced[path], fps, "libx264")
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(path.resolve(), target)


def those_of(table: Table, episodes: list[int]) -> Table:
    """Return a table of some episodes."""
    infos = tuple(table.episodes[episode] for episode in episodes)
    return replace(table, starts=table.starts[episodes], stops=table.stops[episodes], episodes=infos, stored=None)


class Judge:
    """A set as it is, whose images are read once; for each fault, only the episodes with it are read again."""

    def __init__(self, root: Path, episodes: int) -> None:
        self.root = root
        table = read_folder(root)
        self.data_set = DataSet(those_of(table, list(range(min(episodes, len(table.starts))))))
        self.spans = spans_of(self.data_set.table)
        begun = time.process_time()
        self.films, self.faults = read_cameras(self.data_set)
        self.spent = time.process_time() - begun
        self.images = sum(len(one.rows) for film in self.films for one in film.signals.values())
        self.base = {key_of(finding) for finding in check_images(self.data_set, self.films)}

    def plant(self, fault: Fault, seed: int) -> tuple[list[int], list[Finding]]:
        """Plant a fault into two episodes of a copy of the set, and return these and the new findings."""
        rng = np.random.default_rng(seed)
        ill = sorted(rng.choice(sorted(self.spans), 2, replace=False).tolist())
        with tempfile.TemporaryDirectory() as folder:
            copy, replaced = Path(folder) / "set", {}
            for episode in ill:
                film = {camera: decode(span) for camera, span in self.spans[episode].items()}
                for camera, frames in fault.plant(film, rng).items():
                    replaced[self.spans[episode][camera].file] = frames
            copy_with(self.root, copy, replaced, next(iter(self.spans[ill[0]].values())).fps)
            films, _ = read_cameras(DataSet(those_of(read_folder(copy), ill)))
        new = {film.name: {ill[at]: one for at, one in film.signals.items()} for film in films}
        films = [replace(film, signals={**film.signals, **new[film.name]}) for film in self.films]
        return ill, [one for one in check_images(self.data_set, films) if key_of(one) not in self.base]


def key_of(finding: Finding) -> tuple[str, int, str]:
    return finding.kind, finding.episode, finding.field


def report(root: Path, names: list[str], episodes: int) -> None:
    judge = Judge(root, episodes)
    kinds = Counter(kind for kind, _, _ in judge.base)
    print(
        f"\n{root.name}: {judge.images} images, {judge.spent / max(judge.images, 1) * 1e4:.1f} CPU s for 10,000; "
        f"as it is: {', '.join(f'{count} {kind}' for kind, count in kinds.items()) or 'nothing found'}"
    )
    print("| planted | found in | also found in them | findings in other episodes |\n|---|---|---|---|")
    for number, name in enumerate(names):
        fault = FAULTS[name]
        if "swapped" in fault.kinds and len(judge.films) < 2:
            continue
        ill, findings = judge.plant(fault, number)
        found = {finding.episode for finding in findings if finding.kind in fault.kinds} & set(ill)
        also = Counter(one.kind for one in findings if one.episode in ill and one.kind not in fault.kinds)
        other = Counter(f"{one.kind} {one.episode}" for one in findings if one.episode not in ill)
        print(
            f"| {name} | {len(found)} of {len(ill)} | {', '.join(also) or '–'} | {', '.join(other) or 0} |", flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, nargs="*", default=[], help="LeRobot sets with one video an episode")
    parser.add_argument("--faults", default=";".join(FAULTS), help="faults, separated by ;")
    parser.add_argument("--episodes", type=int, default=12, help="episodes of a set that are used")
    parser.add_argument("--keep", type=Path, help="folder for the rendered sets")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp())
    made = {"sharp": (0, 30, "libx264", 1.5), "noisy": (1, 15, "mpeg4", 5.0)} if not args.set else {}
    for name, options in made.items():
        if not (folder / name).exists():
            render(folder / name, *options)
    for root in args.set or [folder / name for name in made]:
        report(root, args.faults.split(";"), args.episodes)
    if args.keep is None:
        shutil.rmtree(folder)
