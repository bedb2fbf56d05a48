"""Whatever a stranger has is refused in one sentence, which names what would open it."""

from __future__ import annotations

import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal import SourceError
from rlenv_robot import open_source

pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
h5py = pytest.importorskip("h5py", reason="the extra 'hdf5' is not installed")

CSV = "t,q1,u\n" + "\n".join(f"{k / 10},{k},{-k}" for k in range(6))
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
ANNEX = "/annex/objects/SHA256E-s34--0123.hdf5\n"


class Bomb:
    """Breaks the test when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch executed",)


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.csv", CSV)


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as file:
        file.add(__file__)


def write_objects(path: Path) -> None:
    np.savez(path, a=np.array([Bomb()], dtype=object))


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["joints"] = np.zeros((5, 2))


FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("a.csv", lambda path: path.write_text(CSV), r"t, q1, u.*--columns"),
    ("a.csv", lambda path: path.write_text("0,1,2\n1,2,5\n"), r"0, 1, 2 \(numbered"),
    ("a.tsv", lambda path: path.write_text(CSV.replace(",", "\t")), r"t, q1, u"),
    ("a.txt", lambda path: path.write_text(CSV.replace(",", " ")), r"t, q1, u"),
    ("a.csv", lambda path: path.write_text(""), "is empty"),
    ("a.csv", lambda path: path.write_text(LFS), "git lfs pull"),
    ("a.hdf5", lambda path: path.write_text(ANNEX), "git annex get"),
    ("a.hdf5", lambda path: path.symlink_to("../.git/annex/objects/x/SHA"), "git annex get"),
    ("a.hdf5", write_hdf5, "joints.*--columns"),
    ("a.h5", lambda path: path.write_bytes(b"nonsense" * 20), "can't be read"),
    ("a.npz", write_objects, "numpy.savez"),
    ("a.pkl", lambda path: path.write_bytes(pickle.dumps(Bomb())), "pickled"),
    ("a.pt", lambda path: path.write_bytes(b"PK" + bytes(100)), "pickled"),
    ("a.mat", lambda path: path.write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200)), "scipy.io.loadmat"),
    ("a.jsonl", lambda path: path.write_text('{"q": 1, "u": 2}\n{"q": 2, "u": 3}\n'), "q, u.*--columns"),
    ("a.json", lambda path: path.write_text("[]"), "JSON Lines"),
    ("a.xlsx", write_zip, "save it as CSV"),
    ("a.avi", lambda path: path.write_bytes(b"RIFF" + bytes(100)), "video alone"),
    ("a.png", lambda path: path.write_bytes(b"\x89PNG\r\n" + bytes(100)), "image alone"),
    ("a.zip", write_zip, "unpack it"),
    ("a.tar.gz", write_tar, "compressed; unpack it"),
    ("a.csv.gz", lambda path: path.write_bytes(b"\x1f\x8b" + bytes(100)), "unpack it"),
    ("a.bag.active", lambda path: path.write_bytes(b"#ROSBAG V2.0\n" + bytes(100)), "rosbag reindex"),
]


@pytest.mark.parametrize("alone", [True, False], ids=["file", "folder"])
@pytest.mark.parametrize(("name", "write", "word"), FILES, ids=[f"{name}-{word[:12]}" for name, _, word in FILES])
def test_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], object], word: str, alone: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / name)
    with pytest.raises(SourceError, match=word) as caught:
        open_source(folder / name if alone else folder)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
    assert not (tmp_path / "executed").exists()


def test_a_folder_of_tables_is_a_file_an_episode(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"run_{number}.csv").write_text(CSV.replace("-", str(number)))
    with pytest.raises(SourceError, match=r"12 files ending in \.csv; run_0\.csv has columns.*each file is an episode"):
        open_source(tmp_path)
    source = open_source(tmp_path, columns={"observation.q": "q1", "action": "u", "time": "t"})
    assert [Path(info["file"]).name for info in source.table.episodes][-3:] == ["run_9.csv", "run_10.csv", "run_11.csv"]


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="found nothing"):
        open_source(tmp_path)


def test_arrays_and_lines_are_tables(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q, u, episode = rng.normal(size=(10, 3)), rng.normal(size=(10, 2)), np.repeat([4, 5], 5)
    np.savez(tmp_path / "a.npz", q=q, u=u, episode=episode)
    np.save(tmp_path / "b.npy", np.concatenate([q, u], axis=1))
    lines = [
        json.dumps({"arm": {"q": list(a)}, "u": list(b), "e": int(e)}) for a, b, e in zip(q, u, episode, strict=True)
    ]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        file["q"], file["u"], file["episode"] = q, u, episode
    named = {"observation.q": "q", "action": "u", "episode": "episode"}
    mappings = {
        "a.npz": named, "b.npy": {"observation.q": [0, 1, 2], "action": [3, 4]}, "d.hdf5": named,
        "c.jsonl": {"observation.q": "arm.q", "action": "u", "episode": "e"},
    }  # fmt: skip
    for name, columns in mappings.items():
        table = open_source(tmp_path / name, columns=columns).table
        assert len(table.starts) == (1 if name == "b.npy" else 2)
        np.testing.assert_array_equal(table.rows["observation_q"], q)
        np.testing.assert_array_equal(table.rows["action_target"][1:5], u[:4])
    table = open_source(tmp_path / "a.npz", columns={"observation.tip": "q[0:2]", "action": "u[1]"}).table
    np.testing.assert_array_equal(table.rows["observation_tip"], q[:, :2])
    np.testing.assert_array_equal(table.rows["action_target"][1:], u[:-1, 1])
    with pytest.raises(SourceError, match=r"it has no 'q\[5\]'"):
        open_source(tmp_path / "a.npz", columns={"observation.tip": "q[5]"})
