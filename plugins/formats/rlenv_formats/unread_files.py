"""Say what a user must do to open files that no format reads by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from hal import SourceError
from rlenv_formats.foreign import listed, pointer_advice
from rlenv_formats.table_files import SINGLE, SUFFIXES, columns_in, natural

__all__ = ["advice"]

_LOOKED = 2000

_COLUMNS = "columns={'observation.state': [...], 'action': ...} (--columns observation.state=A+B,action=C)"

_ARCHIVE = "is an archive; unpack it, and open what was in it"
_PICKLE = (
    "holds pickled Python objects, which can run code and are therefore never opened; load it where you trust it, and "
    "save its arrays with numpy.savez"
)
_MATLAB = (
    "is a file of MATLAB; load it with scipy.io.loadmat and save its arrays with numpy.savez, or save it in MATLAB "
    "with -v7.3 and name it .h5"
)
_SHEET = "is a spreadsheet; save it as CSV"
_VIDEO = "is a video alone, without observations or actions; open the folder of the data set that it belongs to"
_IMAGE = "is an image alone, without observations or actions; open the folder of the data set that it belongs to"
_COMPRESSED = "is compressed; unpack it first (gunzip, unzstd, xz -d, bunzip2)"

_ENDINGS: Mapping[str, str] = {
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar"), _ARCHIVE),
    **dict.fromkeys((".pkl", ".pickle", ".p", ".joblib", ".pt", ".pth"), _PICKLE),
    ".mat": _MATLAB,
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _SHEET),
    **dict.fromkeys((".avi", ".mp4", ".mov", ".mkv", ".webm", ".svo", ".svo2"), _VIDEO),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".ppm"), _IMAGE),
    **dict.fromkeys((".gz", ".zst", ".xz", ".bz2", ".lz4"), _COMPRESSED),
    ".json": "is JSON; tables are read from JSON Lines, one object a line: save it so, with the ending .jsonl",
    ".tfrecord": "is a shard of TensorFlow's records; open the folder that it lies in",
    ".active": "is a bag whose recording was not closed; run `rosbag reindex` on it, and name it .bag",
}


def advice(path: Path) -> str | None:
    """Return a sentence, without its subject, for a file or folder that no format recognises; None without advice.

    Args:
        path: the file or folder.
    """
    if path.is_symlink() and not path.exists():
        return pointer_advice(b"", path)
    return _of_file(path) if path.is_file() else _of_folder(path)


def _of_file(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        return f"can't be read: {error}"
    if pointer := pointer_advice(head, path):
        return pointer
    if not head:
        return "is empty; fetch or record it again"
    if path.suffix.lower() in (*SUFFIXES, *SINGLE):
        return _table(path)
    return _ENDINGS.get(path.suffix.lower())


def _table(path: Path) -> str | None:
    try:
        names = columns_in(path)
    except SourceError as error:
        if path.suffix.lower() == ".txt":
            return None  # most texts are no tables
        return f"can't be read as a table: {error}"
    except Exception as error:  # h5py and pyarrow raise many kinds for damaged files
        return f"can't be read as a table: {error!r:.200}"
    more = " (numbered, since the first row does not name them)" if names and all(n.isdecimal() for n in names) else ""
    return (
        f"has columns of unknown meaning: {listed(names, 20) or 'none'}{more}; name those of observation and action: "
        f"{_COLUMNS}"
    )


def _of_folder(path: Path) -> str | None:
    """Return advice for the kind of file that a folder holds most of."""
    kinds: Counter[str] = Counter()
    firsts: dict[str, Path] = {}
    for file in sorted(_files(path), key=natural):
        if file.is_symlink() and not file.exists():
            return f"holds no data that can be read: {file.name} {pointer_advice(b'', file)}"
        kind = file.suffix.lower()
        kinds[kind] += 1
        firsts.setdefault(kind, file)
    tables = [kind for kind in SUFFIXES if kind in kinds] or [kind for kind in SINGLE if kind in kinds]
    known = tables or sorted((kind for kind in _ENDINGS if kind in kinds), key=lambda kind: -kinds[kind])
    if not known:
        return None
    kind = max(tables, key=lambda kind: kinds[kind]) if tables else known[0]
    about = _of_file(firsts[kind])
    if about is None:
        return None
    rest = " and each file is an episode" if tables and kinds[kind] > 1 and "unknown meaning" in about else ""
    files = "a file" if kinds[kind] == 1 else f"{kinds[kind]} files"
    return f"holds no data set, but {files} ending in {kind}; {firsts[kind].name} {about}{rest}"


def _files(folder: Path) -> Iterator[Path]:
    """Yield the first files in a folder or below it; hidden ones are left out."""
    found = (one for one in folder.rglob("*") if one.is_symlink() or one.is_file())
    visible = (one for one in found if not any(name.startswith(".") for name in one.relative_to(folder).parts))
    return islice(visible, _LOOKED)
