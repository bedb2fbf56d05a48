from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from recorder.formats.registry import sets_in, writable_format, writable_names
from rlenv_formats.foreign import (
    check_memory,
    fill_pattern,
    inside,
    read_mapping,
    shape_of,
    whole_number,
)
from rlenv_robot.data.folder import read_folder

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123\n"
VALUES = {"chunk_index": 0, "file_index": 7, "episode_index": 3, "episode_chunk": 0}


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "C:\\x", "..\\x", "", None, 3, "a\0b", "x" * 2000]
)
def test_paths_stay_inside(tmp_path: Path, name: Any) -> None:
    with pytest.raises(SourceError, match=r"info\.json"):
        inside(tmp_path, name, "info.json")
    assert inside(tmp_path, "data/a..b.parquet", "info.json") == tmp_path / "data" / "a..b.parquet"


@pytest.mark.parametrize(
    "pattern",
    [
        "{file_index:5000000000}",
        "{file_index:999}",
        "{x}",
        "{file_index.real}",
        "{file_index!r}",
        "{",
        "{0}",
        None,
        "../{file_index}",
    ],
)
def test_patterns_name_files_and_nothing_else(tmp_path: Path, pattern: Any) -> None:
    with pytest.raises(SourceError, match="data_path"):
        fill_pattern(tmp_path, pattern, "info.json: data_path", VALUES)


def test_a_pattern_is_filled(tmp_path: Path) -> None:
    path = fill_pattern(tmp_path, "data/{chunk_index:03d}/{file_index:06d}.parquet", "data_path", VALUES)
    assert path == tmp_path / "data" / "000" / "000007.parquet"


@given(st.one_of(st.none(), st.text(), st.floats(), st.booleans(), st.lists(st.integers()), st.integers()))
def test_whole_numbers(value: Any) -> None:
    if not isinstance(value, bool) and isinstance(value, int | float) and value in range(1, 101):
        assert whole_number(value, "fps", 1, 100) == value
        return
    with pytest.raises(SourceError, match="expected a whole number from 1 to 100"):
        whole_number(value, "fps", 1, 100)


def test_shapes_have_bounds() -> None:
    assert shape_of([480, 640, 3], "top") == (480, 640, 3)
    for shape in ([10**9], [10**6, 10**6], [0], [1.5], "abc", None, [1] * 9, [True]):
        with pytest.raises(SourceError, match="top"):
            shape_of(shape, "top")


def test_memory_follows_the_bytes_on_disk() -> None:
    check_memory("small", 100 << 20, 10)
    check_memory("large", 10 << 30, 1 << 30)
    with pytest.raises(SourceError, match="made to use up memory"):
        check_memory("bomb", 7 << 30, 3 << 20)


def test_a_description_is_text_of_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "info.json"
    for content, message in (
        (b"\xff\xfe\x00", "not text"), (b"[1]", "holds a list"), (b"{", "not JSON"), (b"[" * 100_000, "not JSON"),
        (POINTER, "git lfs pull"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(SourceError, match=message) as caught:
            read_mapping(path)
        assert str(path) in str(caught.value)


# -- Every format --------------------------------------------------------------------------------------------


NAMES = {"minari": "set-v0", "robomimic": "set.hdf5"}
"""Format -> name of a data set, where not every name will do."""

NOT_READ = {"rerun": "it is written for a viewer, and refuses to be read back"}
"""Format -> why no data set of it is read here."""


def _writes(name: str) -> Callable[[Path, Any], Path]:
    """Return a function that writes a data set of a format into a folder, and returns its path."""

    def write(root: Path, make_table: Any) -> Path:
        path = root / NAMES.get(name, "set")
        _, write_table = writable_format(name)
        write_table(make_table(), path)
        return path

    return write


_lerobot, _minari, _robomimic, _parquet = map(_writes, ("lerobot", "minari", "robomimic", "parquet"))
FORMATS = {name: _writes(name) for name in writable_names() if name not in NOT_READ}


@pytest.fixture
def libraries() -> None:
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_git_lfs_pointers_are_recognised(tmp_path: Path, make_table: Any, write: Callable[..., Path]) -> None:
    path = write(tmp_path, make_table)
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    seen = 0
    for file in files:
        content = file.read_bytes()
        file.write_bytes(POINTER)
        try:
            notes = read_folder(path).notes  # a file that is not needed, such as statistics
            seen += any("git lfs pull" in note for note in notes)
        except SourceError as error:
            seen += 1 if "git lfs pull" in str(error) else 1000
        file.write_bytes(content)
    assert min(2, len(files)) <= seen <= len(files)  # every error said it
    assert len(read_folder(path).starts) == 3


@pytest.mark.usefixtures("libraries")
def test_ls_survives_any_folder(tmp_path: Path, make_table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from rlenv_robot.cli.main import main

    _lerobot(tmp_path, make_table)
    info = json.loads((tmp_path / "set" / "meta" / "info.json").read_text())
    changes: dict[str, Any] = {
        "fps0": {"fps": 0}, "fpsnull": {"fps": None}, "path": {"data_path": "data/{chunk_index"},
        "other": {"data_path": "data/{nothing}.parquet"}, "features": {"features": []}, "size": {"chunks_size": "x"},
        "shape": {"features": {**info["features"], "action": {"dtype": "float32", "shape": [10**9]}}},
        "outside": {"data_path": "../../{file_index}"}, "types": {"codebase_version": 3, "total_frames": []},
    }  # fmt: skip
    for name, change in changes.items():
        (tmp_path / name / "meta").mkdir(parents=True)
        (tmp_path / name / "meta" / "info.json").write_text(json.dumps(info | change))
    for name, content in (("binary", b"\xff\x00\xfe"), ("empty", b""), ("lfs", POINTER), ("deep", b"[" * 200_000)):
        (tmp_path / name / "meta").mkdir(parents=True)
        (tmp_path / name / "meta" / "info.json").write_bytes(content)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert main(["data", "ls", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    states = {words[0]: words[-1] for words in lines}
    assert states["set"] == "whole"
    assert {name for name, state in states.items() if state == "unreadable"} == {
        *changes,
        "binary",
        "empty",
        "lfs",
        "deep",
    }


BOMBS = """
import json, resource, sys
from pathlib import Path
from hal import SourceError
from rlenv_robot.data.folder import read_folder
import h5py, pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_folder(Path(sys.argv[1]))
    print("read")
except SourceError as error:
    print("refused", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def _bomb(path: Path) -> tuple[str, int]:
    """Read a data set in a process of its own: its last words, and by how many MiB its memory grew."""
    command = [sys.executable, "-c", BOMBS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=_limited)
    assert done.returncode == 0, done.stderr[-1000:]
    *said, grown = done.stdout.splitlines()
    return " ".join(said), int(grown)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def _many_rows(root: Path, make_table: Any) -> Path:
    """A Parquet file of a few kilobytes that claims six million rows, half a gigabyte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = _lerobot(root, make_table)
    file = next(path.glob("data/**/*.parquet"))
    schema, count, columns = pq.read_schema(file), 300_000, {}
    for field in schema:
        if not pa.types.is_fixed_size_list(field.type):
            columns[field.name] = pa.array(np.zeros(count), field.type, safe=False)
            continue
        width = field.type.list_size
        flat = pa.array(np.zeros(count * width), field.type.value_type)
        columns[field.name] = pa.FixedSizeListArray.from_arrays(flat, width)
    table = pa.table(columns, schema=schema)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(table)
    return path


def _sparse(root: Path, make_table: Any) -> Path:
    import h5py

    with h5py.File(root / "sparse.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo.create_dataset("obs/state", (10**10, 4), "f8", chunks=(1024, 4))
        demo.create_dataset("actions", (10**10, 2), "f8", chunks=(1024, 2))
    return root / "sparse.hdf5"


def _many_episodes(root: Path, make_table: Any) -> Path:
    path = _minari(root, make_table)
    about = path / "data" / "metadata.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"total_episodes": 10**8}))
    return path


def _wide(root: Path, make_table: Any) -> Path:
    path = _lerobot(root, make_table)
    about = path / "meta" / "info.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"data_path": "{file_index:5000000000}"}))
    return path


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("write", [_many_rows, _sparse, _many_episodes, _wide], ids=lambda write: write.__name__)
def test_hostile_small_files_stay_small(tmp_path: Path, make_table: Any, write: Callable[..., Path]) -> None:
    said, grown = _bomb(write(tmp_path, make_table))
    assert grown < 300, said
    assert said.startswith("read" if write is _many_episodes else "refused"), said


@pytest.mark.usefixtures("libraries")
def test_links_to_other_files_are_refused(tmp_path: Path, make_table: Any) -> None:
    import h5py

    secret = _robomimic(tmp_path, make_table)
    with h5py.File(tmp_path / "link.hdf5", "w") as file:
        for number in range(2):
            file[f"data/demo_{number}/actions"] = np.zeros((3, 2))
            file[f"data/demo_{number}/obs/state"] = np.zeros((3, 2))
        file["data/demo_1/next_obs"] = h5py.ExternalLink(str(secret), "data/demo_0/next_obs")
        del file["data/demo_0/obs"]
        file["data/demo_0/obs"] = h5py.ExternalLink(str(secret), "data/demo_0/obs")
    with pytest.raises(SourceError, match="a link to another file"):
        read_folder(tmp_path / "link.hdf5")
    with h5py.File(tmp_path / "raw.hdf5", "w") as file:
        file["data/demo_0/obs/state"] = np.zeros((3, 2))
        (tmp_path / "raw.bin").write_bytes(bytes(48))
        file["data/demo_0"].create_dataset("actions", (3, 2), "f8", external=[(str(tmp_path / "raw.bin"), 0, 48)])
    with pytest.raises(SourceError, match="lies in another file"):
        read_folder(tmp_path / "raw.hdf5")


@pytest.mark.usefixtures("libraries")
def test_a_folder_of_sets_is_listed_and_opened_as_one(tmp_path: Path, make_table: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _parquet(tmp_path / name, make_table)
    assert len(sets_in(tmp_path)) == 2
    table = read_folder(tmp_path)
    assert len(table.starts) == 6
    np.testing.assert_array_equal(table.rows["reward"][: table.starts[3]], table.rows["reward"][table.starts[3] :])
