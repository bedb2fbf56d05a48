"""Videos of a data set go into another one packet by packet: judged by PyAV, frame by frame and byte by byte."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.formats.images import Filming, with_videos
from recorder.table.combine import joined, subset
from recorder.table.table import Table
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_formats.lerobot.write import write_lerobot
from tests.rlenv_robot.cli.test_data import run

av = pytest.importorskip("av", reason="PyAV is not installed")
pytest.importorskip("cv2", reason="OpenCV is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

TOP = "observation.images.top"
FPS, LENGTHS = 10, (7, 30, 5, 16)
VP9 = ("libvpx-vp9", {"g": "9", "deadline": "realtime", "cpu-used": "8"})
CODECS = {
    "av1": ("libsvtav1", {"g": "2", "crf": "30", "preset": "12"}),
    "vp9": VP9,
    "h264": ("libx264", {"g": "12", "bf": "3", "b-pyramid": "normal"}),
    "h264 of open groups": ("libx264", {"g": "12", "bf": "3", "x264-params": "open-gop=1:scenecut=0"}),
    "hevc": ("libx265", {"x265-params": "keyint=12:bframes=3:log-level=none"}),
    "mpeg4": ("mpeg4", {"g": "12", "bf": "2"}),
}


def pictures(count: int, seed: int = 0, size: tuple[int, int] = (48, 64)) -> list[np.ndarray]:
    """A pattern that moves, with noise, so that no frame is like another."""
    rng = np.random.default_rng(seed)
    wave = np.linspace(0, 12, size[1])[None, :, None] + np.linspace(0, 9, size[0])[:, None, None]
    return [
        (127 + 90 * np.sin(wave + 0.3 * n + np.arange(3)) + rng.integers(-30, 30, (*size, 3))).clip(0, 255).astype("u1")
        for n in range(count)
    ]


def film(
    path: Path, frames: Sequence[np.ndarray], codec: str = "vp9", rate: int = FPS, unit: Fraction | None = None,
    sound: bool = False,
) -> None:  # fmt: skip
    """Encode a video; ``unit`` gives its stamps another unit of time, to which they are rounded."""
    writer = threading.Thread(target=_film, args=(path, frames, codec, rate, unit, sound))  # SVT-AV1 makes it real-time
    writer.start()
    writer.join()


def _film(path: Path, frames: Sequence[np.ndarray], codec: str, rate: int, unit: Fraction | None, sound: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    name, options = CODECS[codec]
    with av.open(str(path), "w") as file:
        stream = file.add_stream(name, rate=rate, options=options)
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
        if unit is not None:
            stream.time_base = stream.codec_context.time_base = unit
        voice = file.add_stream("aac", rate=16000) if sound else None
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.time_base = unit or Fraction(1, rate)
            frame.pts = round(Fraction(number, rate) / frame.time_base)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
        if voice is not None:
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            tone.sample_rate = 16000
            file.mux(voice.encode(tone))
            file.mux(voice.encode())


def make_set(root: Path, videos: Sequence[Sequence[int]], version: str = "v3.0", **how: Any) -> Path:
    """A data set of `LENGTHS` frames an episode; ``videos`` has the numbers of the episodes in each video."""
    v3, count, rate = version == "v3.0", sum(LENGTHS), how.pop("rate", FPS)
    rng = np.random.default_rng(1)
    columns = {
        "observation.state": rng.normal(size=count).astype(np.float32),
        "action": rng.normal(size=count).astype(np.float32),
        "timestamp": np.concatenate([np.arange(n) / FPS for n in LENGTHS]).astype(np.float32),
        "frame_index": np.concatenate([np.arange(n) for n in LENGTHS]),
        "episode_index": np.repeat(np.arange(len(LENGTHS)), LENGTHS),
        "index": np.arange(count),
        "task_index": np.zeros(count, int),
    }
    scalar = {"dtype": "float32", "shape": [1], "names": None}
    video = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    data = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    if not v3:
        video = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
        data = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    info = {
        "codebase_version": version, "fps": FPS, "total_episodes": len(LENGTHS), "total_frames": count,
        "chunks_size": 1000, "video_path": video, "data_path": data,
        "features": {"observation.state": scalar, "action": scalar, TOP: {"dtype": "video", "shape": [48, 64, 3]}},
    }  # fmt: skip
    (root / "meta").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps(info))
    stats = {
        name: [[[0.1 * number]]] * 3 for number, name in enumerate(("min", "q01", "q10", "mean", "q50", "q90", "max"))
    }
    entries = [{"episode_index": e, "length": n, "tasks": ["look"]} for e, n in enumerate(LENGTHS)]
    for number, members in enumerate(videos):
        frames = [picture for e in members for picture in pictures(LENGTHS[e] * rate // FPS, seed=e)]
        place = {"video_key": TOP, "chunk_index": 0, "file_index": number, "episode_chunk": 0, "episode_index": number}
        film(root / video.format(**place), frames, rate=rate, **how)
        for position, e in enumerate(members):
            entries[e] |= {
                "data/chunk_index": 0, "data/file_index": 0, f"videos/{TOP}/chunk_index": 0,
                f"videos/{TOP}/file_index": number,
                f"videos/{TOP}/from_timestamp": sum(LENGTHS[m] for m in members[:position]) / FPS,
                f"stats/{TOP}/count": [17 + e], f"stats/{TOP}/std": [[[0.05]]] * 3,
                **{f"stats/{TOP}/{name}": value for name, value in stats.items()},
            }  # fmt: skip
    table = pa.table(columns)
    if v3:
        (root / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
        (root / "data" / "chunk-000").mkdir(parents=True)
        pq.write_table(table, root / "data" / "chunk-000" / "file-000.parquet")
        pq.write_table(pa.Table.from_pylist(entries), root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
        return root
    (root / "data" / "chunk-000").mkdir(parents=True)
    lines = [{key: entry[key] for key in ("episode_index", "length", "tasks")} for entry in entries]
    (root / "meta" / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = [
        {"episode_index": e, "stats": {TOP: stats | {"count": [17 + e], "std": [[[0.05]]] * 3}}}
        for e in range(len(LENGTHS))
    ]
    (root / "meta" / "episodes_stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    for e in range(len(LENGTHS)):
        pq.write_table(
            table.filter(pc.equal(table["episode_index"], e)),
            root / data.format(episode_chunk=0, episode_index=e),
        )
    return root


# ---- the judge: PyAV alone ----


def shown(path: Path) -> tuple[np.ndarray, list[bytes], list[bytes]]:
    """Time, packet and decoded planes of each frame of a video, decoded from start to end, in the order of showing."""
    with av.open(str(path)) as file:
        packets = sorted((float(p.pts * p.time_base), bytes(p)) for p in file.demux(video=0) if p.size)
    with av.open(str(path)) as file:
        frames = [frame.to_ndarray().tobytes() for frame in file.decode(video=0)]
    assert len(frames) == len(packets)
    return np.array([time for time, _ in packets]), [data for _, data in packets], frames


def episode(root: Path, number: int, within: float = 1e-4) -> list[tuple[bytes, bytes]]:
    """The packet and the decoded frame at each time of an episode, as LeRobot looks for them."""
    info = json.loads((root / "meta" / "info.json").read_text())
    if info["codebase_version"] == "v3.0":
        line = pq.read_table(root / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()[number]
        at = {"video_key": TOP, "chunk_index": 0, "file_index": line[f"videos/{TOP}/file_index"]}
        begin, length = line[f"videos/{TOP}/from_timestamp"], line["length"]
    else:
        at, begin = {"video_key": TOP, "episode_chunk": 0, "episode_index": number}, 0.0
        length = LENGTHS[number]
    times, packets, frames = shown(root / info["video_path"].format(**at))
    places = [int(np.argmin(np.abs(times - begin - frame / info["fps"]))) for frame in range(length)]
    off = max(abs(times[place] - begin - frame / info["fps"]) for frame, place in enumerate(places))
    assert off < within  # by default LeRobot's tolerance
    return [(packets[place], frames[place]) for place in places]


def check_copied(source: Path, copy: Path, numbers: Sequence[int]) -> None:
    """Each episode of the copy has the packets and the pixels of its source."""
    for place, number in enumerate(numbers):
        ours, theirs = episode(copy, place), episode(source, number)
        assert len(ours) >= len(theirs) - 1  # what followed the last action was not recorded
        assert ours == theirs[: len(ours)], (place, number)


def loaded(root: Path) -> Table:
    return load_lerobot(root, keep_last=True)


# ---- tests ----


@pytest.mark.parametrize("codec", CODECS)
def test_any_choice_of_episodes_keeps_its_bits(tmp_path: Path, codec: str) -> None:
    source = make_set(tmp_path / "set", [(0, 1, 2, 3)], codec=codec)
    for number, chosen in enumerate([(0, 1, 2, 3), (2,), (3, 1), (1, 1, 0)]):
        notes = write_lerobot(subset(loaded(source), chosen), tmp_path / f"cut-{number}")
        assert not [note for note in notes if "anew" in note or "black" in note]
        check_copied(source, tmp_path / f"cut-{number}", chosen)


@pytest.mark.parametrize("codec", ["av1", "h264"])
def test_three_generations_keep_their_bits(tmp_path: Path, codec: str) -> None:
    source = last = make_set(tmp_path / "set", [(0, 1), (2, 3)], codec=codec)
    kept = [0, 1, 2, 3]
    for number, chosen in enumerate([(1, 2, 3), (2, 0), (1,)]):
        write_lerobot(subset(loaded(last), chosen), tmp_path / f"{number}")
        last, kept = tmp_path / f"{number}", [kept[place] for place in chosen]
        check_copied(source, last, kept)
    with_all = tmp_path / "0" / "videos"
    assert sum(path.stat().st_size for path in (last / "videos").rglob("*.mp4")) < sum(
        path.stat().st_size for path in with_all.rglob("*.mp4")
    )


def test_a_file_for_each_episode_becomes_one(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0,), (1,), (2,), (3,)], "v2.1", codec="h264")
    write_lerobot(loaded(source), tmp_path / "out")
    check_copied(source, tmp_path / "out", range(4))
    assert len(list((tmp_path / "out").rglob("*.mp4"))) == 1


def test_other_parameters_begin_another_file(tmp_path: Path) -> None:
    sets = [make_set(tmp_path / codec, [(0, 1, 2, 3)], codec=codec) for codec in ("av1", "vp9")]
    table = joined([loaded(root) for root in sets], "both")
    write_lerobot(subset(table, [0, 5, 6, 1]), tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.mp4"))) == 3
    check_copied(sets[0], tmp_path / "out", [0])
    info = json.loads((tmp_path / "out" / "meta" / "info.json").read_text())
    assert info["features"][TOP]["info"]["video.codec"] == "av1"


@pytest.mark.parametrize("unit", [Fraction(1, 90000), Fraction(1, 1024)])
def test_units_of_time_may_differ(tmp_path: Path, unit: Fraction) -> None:
    ours = make_set(tmp_path / "ours", [(0, 1, 2, 3)])
    theirs = make_set(tmp_path / "theirs", [(0, 1, 2, 3)], unit=unit)
    write_lerobot(subset(joined([loaded(ours), loaded(theirs)], "both"), [2, 5, 7]), tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.mp4"))) == 1
    assert episode(tmp_path / "out", 1) == episode(theirs, 1, 1e-3)[: LENGTHS[1]]


def test_a_video_of_twice_the_rate(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0, 1, 2, 3)], rate=2 * FPS)
    write_lerobot(subset(loaded(source), [2, 1]), tmp_path / "out")
    check_copied(source, tmp_path / "out", [2, 1])


def test_what_does_not_fit_is_encoded_anew_and_said(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0,), (1, 2, 3)])
    video = sorted(source.rglob("*.mp4"))[1]
    film(video, pictures(2 * sum(LENGTHS)), rate=12)  # there is an image near each time, but not at each
    notes = write_lerobot(loaded(source), tmp_path / "near")
    assert [note for note in notes if "3 of 4 episodes of camera top were encoded anew" in note]
    check_copied(source, tmp_path / "near", [0])
    film(video, pictures(20))
    with pytest.raises(SourceError, match="has no frame at"):
        write_lerobot(loaded(source), tmp_path / "short")
    film(video, pictures(sum(LENGTHS)))
    write_lerobot(loaded(source), tmp_path / "small", Filming(size=(24, 32)))
    with av.open(str(next((tmp_path / "small").rglob("*.mp4")))) as file:
        assert (file.streams.video[0].height, file.streams.video[0].width) == (24, 32)


def test_sound_is_left_out_and_said(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0, 1, 2, 3)], sound=True, codec="h264")
    assert "the sound of 1 videos is left out" in write_lerobot(loaded(source), tmp_path / "out")
    check_copied(source, tmp_path / "out", range(4))
    with av.open(str(next((tmp_path / "out").rglob("*.mp4")))) as file:
        assert not file.streams.audio


@pytest.mark.parametrize(("version", "videos"), [("v3.0", [(0, 1, 2, 3)]), ("v2.1", [(0,), (1,), (2,), (3,)])])
def test_statistics_are_carried_over(tmp_path: Path, version: str, videos: Any) -> None:
    source = make_set(tmp_path / "set", videos, version)
    write_lerobot(subset(loaded(source), [3, 1]), tmp_path / "out")
    lines = pq.read_table(tmp_path / "out" / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()
    assert [line[f"stats/{TOP}/count"] for line in lines] == [[20], [18]]
    assert [line[f"stats/{TOP}/mean"] for line in lines] == [[[[pytest.approx(0.3)]]] * 3] * 2
    assert f"stats/{TOP}/q99" not in lines[0]  # the source has none
    stats = json.loads((tmp_path / "out" / "meta" / "stats.json").read_text())[TOP]
    assert stats["count"] == [38]
    assert stats["std"] == [[[pytest.approx(0.05)]]] * 3
    assert "q99" not in stats


def test_statistics_that_are_missing_come_from_a_sample(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0,), (1,), (2,), (3,)], "v2.1")
    (source / "meta" / "episodes_stats.jsonl").unlink()
    write_lerobot(loaded(source), tmp_path / "out")
    stats = json.loads((tmp_path / "out" / "meta" / "stats.json").read_text())[TOP]
    assert stats["count"] == [sum(LENGTHS)]
    assert np.array(stats["mean"]).ravel() == pytest.approx(np.array(pictures(1)[0]).mean((0, 1)) / 255, abs=0.05)


def test_a_missing_video_is_refused_with_the_ways_on(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0, 1), (2, 3)])
    video = sorted(source.rglob("*.mp4"))[1]
    video.unlink()
    table = loaded(source)
    with pytest.raises(SourceError, match=r"file-001\.mp4 is missing, .* 2 of 4 .*--skip-missing.*--cameras"):
        write_lerobot(table, tmp_path / "out")
    assert write_lerobot(table, tmp_path / "blind", Filming(cameras=()))
    rest, (note,) = with_videos(table)
    assert note.startswith("2 of 4 episodes are left out")
    write_lerobot(rest, tmp_path / "out")
    check_copied(source, tmp_path / "out", [0, 1])
    for path in source.rglob("*.mp4"):
        path.unlink()
    with pytest.raises(SourceError, match="each episode of"):
        with_videos(table)


def test_a_torn_video_is_refused_by_name(tmp_path: Path) -> None:
    source = make_set(tmp_path / "set", [(0, 1), (2, 3)])
    video = sorted(source.rglob("*.mp4"))[1]
    video.write_bytes(video.read_bytes()[:300])
    with pytest.raises(SourceError, match=r"file-001\.mp4 is no video"):
        write_lerobot(loaded(source), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_merged_set_has_its_own_images(tmp_path: Path) -> None:
    sets = [make_set(tmp_path / name, [(0, 1, 2, 3)], codec="h264") for name in ("a", "b")]
    assert run("data", "merge", *sets, "--to", tmp_path / "all", "--keep-last") == 0
    for root in sets:
        shutil.rmtree(root)
    assert run("data", "cut", tmp_path / "all", tmp_path / "few", "--episodes", "1,6", "--keep-last") == 0
    check_copied(tmp_path / "all", tmp_path / "few", [1, 6])


def test_the_verbs_take_the_ways_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_set(tmp_path / "set", [(0, 1), (2, 3)], codec="h264")
    sorted(source.rglob("*.mp4"))[1].unlink()
    cut = ("data", "cut", source, tmp_path / "out", "--episodes", "1-3")
    assert run(*cut) != 0
    assert "--skip-missing" in capsys.readouterr().err
    assert run(*cut, "--skip-missing", "--keep-last") == 0
    assert "2 of 3 episodes are left out" in capsys.readouterr().out
    check_copied(source, tmp_path / "out", [1])
    assert run("data", "merge", source, source, "--to", tmp_path / "blind", "--cameras", "none") == 0
    assert run("data", "export", source, tmp_path / "exported", "--to", "lerobot", "--skip-missing") == 0
    assert not list((tmp_path / "blind").rglob("*.mp4"))
