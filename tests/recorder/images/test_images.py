from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, Image, LogError, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.images.images import Images, _Cache
from recorder.images.sources import ByTime, ImageIndex, Place
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import build, load_runs
from recorder.table.table import Table

cv2 = pytest.importorskip("cv2")

PERIOD = 20_000_000
LAYOUT = FrameLayout(Spec("o", (Field("x", ()),)), Spec("a", (Field("u", ()),)))


def colour(episode: int, frame: int) -> np.ndarray:
    """Tells which image it is, and whether colours were swapped."""
    return np.array([40 + episode * 60, 20 + frame * 8, 200], np.uint8)


def record(folder: Path, episodes: int = 2, frames: int = 20, every: int = 1, same_clock: bool = True) -> Table:
    """PNG images of a single colour, of every so-manieth frame, taken 5 ms before it."""
    sink = McapWriter(folder, LAYOUT, {})
    for episode in range(episodes):
        sink.episode("begin", episode, "{}", 0)
        for frame in range(frames):
            row = LAYOUT.spec.rows()
            stamp = (frame + (0 if same_clock else episode * frames)) * PERIOD
            row["episode"], row["frame_no"], row["stamp_ns"], row["acted"] = episode, frame, stamp, frame > 0
            sink.frame(row.tobytes(), episode * 10**12 + stamp)
            if frame % every == 0:
                image = np.tile(colour(episode, frame)[::-1], (12, 16, 1))
                image[:4, :4] = 0  # the corner that a crop leaves out
                data = cv2.imencode(".png", image)[1].tobytes()
                sink.image("top", Image(data, "png", stamp - 5_000_000), episode * 10**12 + stamp)
        sink.sync()  # a chunk ends
        sink.episode("end", episode, '{"end": "time"}', 0)
    sink.close()
    return build(folder)


@pytest.mark.requirement("R3.3")
def test_rows_get_their_own_images(tmp_path: Path) -> None:
    table = record(tmp_path)  # both episodes begin at stamp 0, as simulated ones do
    with Images(table) as source:
        assert source.cameras() == ("top",)
        rows = np.random.default_rng(0).permutation(40).repeat(2)
        images, mask = source.at(rows, "top")
    assert images.shape == (80, 12, 16, 3)
    assert mask.all()
    for row, image in zip(rows, images, strict=True):
        assert (image[-1, -1] == colour(row // 20, row % 20)).all()


def test_crop_size_order_and_stack(tmp_path: Path) -> None:
    table = record(tmp_path)
    with Images(table, crop=(4, 4, 8, 12), size=(4, 6), order="bgr") as source:
        images, mask = source.at([25, 20], "top", past=(2, 1, 0))
    assert images.shape == (2, 3, 4, 6, 3)
    assert mask.all()
    assert (images[0, 0] == colour(1, 3)[::-1]).all()  # nothing of the black corner is in it
    assert (images[0, 2] == colour(1, 5)[::-1]).all()
    assert (images[1] == colour(1, 0)[::-1]).all()  # the first frame is its own past


def test_age_and_choice(tmp_path: Path) -> None:
    table = record(tmp_path, every=4)
    with Images(table) as source:
        latest, _ = source.at([3], "top")
        nearest, _ = source.at([3], "top", how="nearest")
        assert (latest[0, -1, -1] == colour(0, 0)).all()
        assert (nearest[0, -1, -1] == colour(0, 4)).all()
        _, mask = source.at([0, 1, 2, 3, 4], "top", max_age_s=0.03)
        assert mask.tolist() == [True, True, False, False, True]
        black, _ = source.at([2], "top", max_age_s=0.001)
        assert not black.any()


def test_runs_are_kept_apart(tmp_path: Path) -> None:
    record(tmp_path / "a", episodes=1)
    record(tmp_path / "b", episodes=2, same_clock=False)
    table = load_runs(tmp_path)
    with Images(table) as source:
        images, mask = source.at(np.arange(60), "top")
    assert mask.all()
    wanted = [colour(0, f) for f in range(20)] + [colour(e, f) for e in range(2) for f in range(20)]
    assert (images[:, -1, -1] == wanted).all()


def test_the_cache_gives_the_same_and_stays_small(tmp_path: Path) -> None:
    table = record(tmp_path)
    with Images(table, cache_bytes=5 * 12 * 16 * 3, threads=1) as source:
        for rows in ([1, 2, 3], [3, 2, 9, 1], list(range(40))):
            images, _ = source.at(rows, "top")
            assert (images[:, -1, -1] == [colour(row // 20, row % 20) for row in rows]).all()
            assert source._cache._size == sum(kept.nbytes for kept in source._cache._kept.values()) <= 5 * 576
    cache = _Cache(100)
    for number in range(5):
        cache.put(("r", "c", number), np.zeros(40, np.uint8))
    assert [number for _, _, number in cache._kept] == [3, 4]
    cache.get(("r", "c", 3))
    cache.put(("r", "c", 9), np.zeros(40, np.uint8))
    assert [number for _, _, number in cache._kept] == [3, 9]


def test_a_torn_log_has_the_images_that_are_whole(tmp_path: Path) -> None:
    record(tmp_path)
    log = tmp_path / "log.mcap"
    whole = log.read_bytes()
    for size in (len(whole) - 9, len(whole) * 2 // 3):
        log.write_bytes(whole[:size])
        places = ImageIndex.build(tmp_path).places["top"]
        assert len(places) in (20, 40)
    index = ImageIndex.build(tmp_path)
    content = next(index.files[0].chunks())._content
    at = whole.find(content[-40:-20])  # chunks of noise are stored as they are; else nothing is found here
    if at > 0:
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert len(ImageIndex.build(tmp_path).places["top"]) < 40


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"rows": [0], "camera": "wrist"}, "has no camera 'wrist', it has top"),
        ({"rows": [40], "camera": "top"}, "from 0 to 39"),
        ({"rows": [[0]], "camera": "top"}, r"rows have shape \(1, 1\)"),
        ({"rows": [0], "camera": "top", "how": "next"}, "how is 'next', allowed are latest, nearest"),
        ({"rows": [0], "camera": "top", "past": ()}, "numbers from 0"),
    ],
)
def test_wrong_requests(tmp_path: Path, arguments: dict[str, Any], told: str) -> None:
    with Images(record(tmp_path)) as source, pytest.raises(SourceError, match=told):
        source.at(**arguments)


def test_wrong_options_and_images(tmp_path: Path) -> None:
    table = record(tmp_path)
    for options, told in (
        ({"order": "gray"}, "order is 'gray'"), ({"crop": (0, 0, 0, 4)}, "crop is"), ({"size": (4,)}, "size is"),
    ):  # fmt: skip
        with pytest.raises(SourceError, match=told):
            Images(table, **options)  # type: ignore[arg-type]
    with Images(table, crop=(0, 0, 13, 4)) as source, pytest.raises(SourceError, match="does not fit images of"):
        source.at([0], "top")
    sink = McapWriter(tmp_path / "bad", LAYOUT, {})
    sink.episode("begin", 0, "{}", 0)
    sink.frame(LAYOUT.spec.rows().tobytes(), 0)
    sink.image("top", Image(b"\xff\xd8 no image", "jpeg", 0), 0)
    sink.close()
    with (
        Images(build(tmp_path / "bad")) as source,
        pytest.raises(LogError, match=r"of camera 'top' .* can't be decoded"),
    ):
        source.at([0], "top")


@settings(max_examples=200)
@given(
    places=st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 30)), max_size=20),
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=10),
    how=st.sampled_from(["latest", "nearest"]),
    age=st.sampled_from([0.0, 3.0, np.inf]),
)
def test_the_choice_is_that_of_a_slow_search(places: Any, rows: Any, how: str, age: float) -> None:
    found = np.array([(episode, stamp, 0, 0, 0, 0) for episode, stamp in sorted(places)], Place)
    episodes, stamps = np.array(rows, np.int64).T
    chosen = ByTime(found).numbers(episodes, stamps, how, age)
    for (episode, stamp), number in zip(rows, chosen.tolist(), strict=True):
        near = [abs(s - stamp) for e, s in places if e == episode and (how == "nearest" or s <= stamp)]
        near = [distance for distance in near if distance <= age]
        assert (number == -1) == (not near)
        if near:
            assert found["episode"][number] == episode
            assert abs(int(found["stamp_ns"][number]) - stamp) == min(near)


def test_channels_first(tmp_path: Path) -> None:
    table = record(tmp_path)
    with Images(table) as plain, Images(table, layout="chw", cache_bytes=4096) as turned:
        rows = np.arange(40)
        wanted, _ = plain.at(rows, "top", past=(1, 0))
        for _ in range(2):  # decoded, and from the cache
            found, _ = turned.at(rows, "top", past=(1, 0))
            assert found.shape == (40, 2, 3, 12, 16)
            assert found.flags.c_contiguous
            np.testing.assert_array_equal(np.moveaxis(found, 2, -1), wanted)


def test_the_index_is_kept_beside_the_table_until_the_log_changes(tmp_path: Path, monkeypatch: Any) -> None:
    table = record(tmp_path)
    places = ImageIndex.load_or_build(tmp_path).places
    with monkeypatch.context() as patched:
        patched.setattr(ImageIndex, "build", None)  # nothing is read again
        again = ImageIndex.load_or_build(tmp_path)
        np.testing.assert_array_equal(again.places["top"], places["top"])
        with Images(table) as source:
            assert (source.at([7], "top")[0][0, -1, -1] == colour(0, 7)).all()
    record(tmp_path / "other", episodes=1)
    (tmp_path / "log.mcap").write_bytes((tmp_path / "other" / "log.mcap").read_bytes())
    assert len(ImageIndex.load_or_build(tmp_path).places["top"]) == 20
    (tmp_path / "table" / "pictures.npz").write_bytes(b"PK nonsense")
    assert len(ImageIndex.load_or_build(tmp_path).places["top"]) == 20


def test_a_folder_that_cannot_be_written_needs_no_kept_index(tmp_path: Path) -> None:
    record(tmp_path)
    for path in (tmp_path / "table").iterdir():
        path.unlink()
    (tmp_path / "table").rmdir()
    (tmp_path / "table").write_text("a file is in the way")
    assert len(ImageIndex.load_or_build(tmp_path).places["top"]) == 40
