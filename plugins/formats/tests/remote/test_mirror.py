"""Data sets at an address: what is fetched, kept, evicted, tried again and refused, against real servers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from plugins.formats.tests.lerobot.test_read import write_set
from plugins.formats.tests.remote.servers import FileServer, serve
from rlenv_formats.lerobot.read import load_lerobot
from rlenv_formats.parquet import load_parquet, write_parquet
from rlenv_formats.remote.mirror import fetched, is_pointer, mirror, opened

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "www").mkdir()
    with serve(FileServer(tmp_path / "www")) as server:
        yield server


def same(address: str, local: Path, cache: Path, **options: Any) -> None:
    """Check that the rows at an address are those of the folder that is served."""
    there = rr.open_source(address, cache=cache, **options).table
    here = rr.open_source(local).table
    assert there.rows.tobytes() == here.rows.tobytes()
    assert [info["episode"] for info in there.episodes] == [info["episode"] for info in here.episodes]


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_web_server(web: FileServer, cache: Path, version: str, lists: bool, ranges: bool) -> None:
    web.lists, web.ranges = lists, ranges
    write_set(web.root / "arm", version)
    same(f"{web.url}/arm", web.root / "arm", cache)
    first = web.sent(".parquet")
    assert first > 0
    same(f"{web.url}/arm", web.root / "arm", cache)
    assert web.sent(".parquet") == first  # the second time nothing of the rows is fetched


@pytest.mark.parametrize("name", ["buffer", "buffer.zarr.zip"])
def test_a_replay_buffer(web: FileServer, cache: Path, name: str) -> None:
    pytest.importorskip("zarr", reason="zarr is not installed")
    from plugins.formats.tests.test_replay_buffer import arrays, write_buffer

    write_buffer(web.root / name, arrays())
    same(f"{web.url}/{name}", web.root / name, cache)


@pytest.mark.parametrize("lists", [True, False])
def test_an_rlds_data_set(web: FileServer, cache: Path, lists: bool) -> None:
    from plugins.formats.tests.rlds_files import write_rlds
    from plugins.formats.tests.test_rlds import EPISODES

    web.lists = lists
    write_rlds(web.root / "made", EPISODES, ["observation/image"], shards=[2, 1])
    same(f"{web.url}/made", web.root / "made", cache)


def test_episodes_are_fetched_on_demand(web: FileServer, cache: Path) -> None:
    write_set(web.root / "arm", "v2.1", (300, 300, 300))
    table = rr.open_source(f"{web.url}/arm", episodes=[1], cache=cache).table
    assert len(table.starts) == 1
    assert {path for path, _ in web.asked if path.endswith(".parquet")} == {
        "/arm/data/chunk-000/episode_000001.parquet"
    }


def test_ranges_of_a_large_file(web: FileServer, cache: Path) -> None:
    """A file of 12 MB with a column of images, of which the numbers alone are read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_set(web.root / "arm", "v3.0", (300, 300))
    file = web.root / "arm" / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(file)
    noise = np.random.default_rng(0).bytes(20_000 * 600)
    cells = pa.array([noise[20_000 * k : 20_000 * (k + 1)] for k in range(600)], pa.binary())
    pq.write_table(table.append_column("observation.images.front", cells), file)
    same(f"{web.url}/arm", web.root / "arm", cache)
    assert web.sent("file-000.parquet") < 4 << 20 < file.stat().st_size


def test_one_episode_of_a_large_file(web: FileServer, cache: Path) -> None:
    """A file of 16 MB with a row group for each of 16 episodes: one episode costs its group and the description."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_set(web.root / "arm", "v3.0", (300,) * 16)
    file = web.root / "arm" / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(file)
    noise = pa.array(np.random.default_rng(0).normal(size=4800 * 400).astype(np.float32))
    info = web.root / "arm" / "meta" / "info.json"
    about = json.loads(info.read_text())
    about["features"]["observation.scan"] = {"dtype": "float32", "shape": [400], "names": None}
    info.write_text(json.dumps(about))
    wide = table.append_column("observation.scan", pa.FixedSizeListArray.from_arrays(noise, 400))
    pq.write_table(wide, file, row_group_size=300)
    there = rr.open_source(f"{web.url}/arm", episodes=[9], cache=cache).table
    assert web.sent("file-000.parquet") < 2 << 20 < 7_000_000 < file.stat().st_size
    here = rr.open_source(web.root / "arm").table
    assert there.rows.tobytes() == here.rows[here.starts[9] : here.stops[9]].tobytes()


def test_hdf5_is_read_in_parts(web: FileServer, cache: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    path, images = web.root / "arm.hdf5", np.random.default_rng(0).integers(0, 256, (40, 96, 128, 3), np.uint8)
    with h5py.File(path, "w") as file:
        for number in range(8):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/x"], demo["actions"] = np.full((40, 2), number), np.zeros((40, 1))
            demo.create_dataset("obs/top_image", data=images, chunks=(1, 96, 128, 3))
    source = rr.open_source(f"{web.url}/arm.hdf5", cache=cache)
    assert source.table.rows.tobytes() == rr.open_source(path).table.rows.tobytes()
    assert web.sent() < path.stat().st_size / 2
    batch = source.steps_at([3], {"images": {"next": False}})
    np.testing.assert_array_equal(batch["extra_info"]["images"]["top"][0], images[3])
    assert web.sent() < path.stat().st_size / 2 + (8 << 20)


def test_a_cut_connection_is_tried_again_and_then_goes_on(web: FileServer, cache: Path) -> None:
    (web.root / "big.csv").write_bytes(os.urandom(20 << 20))
    path = mirror(f"{web.url}/big.csv", cache)
    web.cut = 2
    assert hashlib.sha256(fetched(path).read_bytes()).digest() == digest(web.root / "big.csv")
    other = mirror(f"{web.url}/big.csv", cache / "other")
    web.asked.clear()
    web.cut = 1
    fetch_in_parts(web, other)
    assert hashlib.sha256(fetched(other).read_bytes()).digest() == digest(web.root / "big.csv")
    assert web.sent("big.csv") <= 21 << 20  # nothing that came before the cut is fetched again


def fetch_in_parts(web: FileServer, path: Path) -> None:
    """Let the server go away for good after the first of three parts."""
    import rlenv_formats.remote.requests as requests

    limit = len(web.asked) + 1
    plain = requests.read_range

    def failing(fs: Any, pointer: Any, start: int, stop: int) -> bytes:
        if len(web.asked) >= limit:
            web.cut = 10
        return plain(fs, pointer, start, stop)

    import rlenv_formats.remote.mirror as module

    module.read_range = failing
    try:
        with pytest.raises(SourceError, match=r"the connection was cut after 8388608 of 20971520 bytes, 4 times"):
            fetched(path)
    finally:
        module.read_range = plain
        web.cut = 0
    assert is_pointer(path)


def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def test_damage_in_the_cache_heals_and_changes_on_the_server_are_seen(web: FileServer, cache: Path) -> None:
    write_set(web.root / "arm", "v3.0")
    same(f"{web.url}/arm", web.root / "arm", cache)
    harmed = 0
    for path in cache.rglob("*"):
        if path.is_file() and path.stat().st_size > 200 and "blocks" in path.parts:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
            harmed += 1
    assert harmed
    same(f"{web.url}/arm", web.root / "arm", cache)
    write_set(web.root / "arm2", "v3.0", (6, 6))
    for path in (web.root / "arm2").rglob("*.*"):
        (web.root / "arm" / path.relative_to(web.root / "arm2")).write_bytes(path.read_bytes())
    same(f"{web.url}/arm", web.root / "arm2", cache)


def test_a_damaged_file_of_the_cache_is_fetched_again(web: FileServer, cache: Path) -> None:
    (web.root / "a.csv").write_bytes(b"x,u\n" + b"1,2\n" * 5000)
    path = fetched(mirror(f"{web.url}/a.csv", cache))
    content = bytearray(path.read_bytes())
    content[9000] ^= 1
    path.write_bytes(content)
    assert digest(fetched(path)) == digest(web.root / "a.csv")


def test_the_cache_is_bounded(web: FileServer, cache: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    bound = 8 << 20
    for number in range(4):
        (web.root / f"{number}.csv").write_bytes(os.urandom(3 << 20))
        noise = pa.array([os.urandom(1 << 16) for _ in range(48)], pa.binary())
        pq.write_table(pa.table({"x": noise}), web.root / f"{number}.parquet")
    paths = [mirror(f"{web.url}/{number}.csv", cache, bound) for number in range(4)]
    for number, path in enumerate(paths):
        fetched(path)
        parquet = mirror(f"{web.url}/{number}.parquet", cache, bound)
        with pq.ParquetFile(opened(parquet)) as file:
            assert file.read().num_rows == 48
        assert sum(one.stat().st_size for one in cache.rglob("*") if one.is_file()) <= bound + (4 << 20)
    assert not is_pointer(paths[-1])
    assert is_pointer(paths[0])  # the oldest went, and comes again
    assert digest(fetched(paths[0])) == digest(web.root / "0.csv")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_refusals_name_the_address_and_what_to_do(web: FileServer, cache: Path, status: int) -> None:
    write_set(web.root / "arm", "v3.0")
    web.status = status
    advice = "check the spelling|server lists no files" if status == 404 else "access is refused.*hf auth login"
    with pytest.raises(SourceError, match=rf"127\.0\.0\.1:\d+/arm.*({advice})"):
        rr.open_source(f"{web.url}/arm", cache=cache)
    with pytest.raises(SourceError, match=rf"127\.0\.0\.1:\d+/arm\.hdf5.*({advice})"):
        rr.open_source(f"{web.url}/arm.hdf5", cache=cache)


def test_no_server_and_no_package_are_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"http://127\.0\.0\.1:9/arm.*connection was cut, 4 times"):
        rr.open_source("http://127.0.0.1:9/arm.hdf5", cache=cache)
    with pytest.raises(SourceError, match=r"can't be read as an address.*allowed are hf, s3, https"):
        rr.open_source("nonsense://x/y", cache=cache)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(SourceError, match=r"needs fsspec and s3fs .*pip install 'rlenv-robot\[remote\]'"):
        rr.open_source("s3://bucket/arm", cache=cache)


def test_a_hostile_list_stays_in_its_folder(cache: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/evil/meta/info.json", b"{}")
    found = memory.find("/evil", detail=True)
    entry = next(iter(found.values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(memory), "find", lambda *_, **__: {"/evil/../../escaped.json": entry})
        with pytest.raises(SourceError, match="would lie outside of its folder"):
            rr.open_source("memory://evil", cache=cache)
    assert not list(cache.rglob("escaped*"))


def test_fsspecs_memory_and_our_own_formats(cache: Path, tmp_path: Path) -> None:
    write_set(tmp_path / "arm", "v3.0")
    table = load_lerobot(tmp_path / "arm")
    write_parquet(table, tmp_path / "rows")
    memory = fsspec.filesystem("memory")
    for name in ("arm", "rows"):
        memory.put(str(tmp_path / name), f"/{name}", recursive=True)
    same("memory://arm", tmp_path / "arm", cache)
    there = rr.open_source("memory://rows", cache=cache).table
    assert there.rows.tobytes() == load_parquet(tmp_path / "rows").rows.tobytes()
    with pytest.raises(SourceError, match="nothing is there"):
        rr.open_source("memory://none", cache=cache)


def test_our_own_runs_and_bags(cache: Path, tmp_path: Path, web: FileServer) -> None:
    with rr.make("so101-reach", record=web.root / "runs", steps=5) as env:
        obs = env.reset({"seed": 0})
        while not (obs["terminated"] or obs["truncated"]):
            action = env.action.sample(np.random.default_rng(0))
            obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    there = rr.open_source(f"{web.url}/runs", cache=cache).table
    assert there.rows.tobytes() == rr.open_source(web.root / "runs").table.rows.tobytes()


@pytest.mark.skipif(importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed")
def test_the_hubs_paths_at_a_stand_in(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test may have imported the library with the variable set.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    write_set(tmp_path / "hub" / "ana" / "arm", "v2.1", (40, 30, 20))
    with serve(FileServer(tmp_path / "hub"), hub=True) as hub:
        options = {"endpoint": hub.url, "token": False, "skip_instance_cache": True}
        same("hf://datasets/ana/arm", tmp_path / "hub" / "ana" / "arm", cache, storage_options=options)
        hub.asked.clear()
        table = rr.open_source(
            "hf://datasets/ana/arm@main", cache=cache / "2", episodes=[2], storage_options=options
        ).table
        assert len(table.rows) == 20
        assert {path.rsplit("/", 1)[-1] for path, _ in hub.asked if path.endswith("parquet")} == {
            "episode_000002.parquet"
        }
        with pytest.raises(SourceError, match=r"datasets/ana/none"):
            rr.open_source("hf://datasets/ana/none", cache=cache, storage_options=options)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(SourceError, match="HF_HUB_OFFLINE"):
            rr.open_source("hf://datasets/ana/arm", cache=cache / "3", storage_options=options)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("s3fs", "moto", "flask")),
    reason="s3fs and moto's server are not installed",
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_s3_server(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.server import ThreadedMotoServer

    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"key": "k", "secret": "s", "endpoint_url": endpoint}
        s3 = fsspec.filesystem("s3", **keys)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3.call_s3("create_bucket", Bucket="bucket")
        write_set(tmp_path / "arm", "v3.0")
        s3.put(str(tmp_path / "arm"), "bucket/arm", recursive=True)
        same("s3://bucket/arm", tmp_path / "arm", cache, storage_options=keys)
        with pytest.raises(SourceError, match=r"nothing is there|is not there"):
            rr.open_source("s3://bucket/none", cache=cache, storage_options=keys)
    finally:
        server.stop()
