"""The model pool: a run's saved models by number, and their zip files with the project's code."""

from __future__ import annotations

import json
import random
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hal.atomic_file import atomic_write

__all__ = ["ModelPool", "read_model", "zip_model"]

_NUMBER = re.compile(r"model\.ckpt-(\d+)(?=\D|$)")
_LEFT_OUT = {"__pycache__", ".git", ".venv", "log", "logs", "ckpt"}


class ModelPool:
    """The newest models of a run, each as the files that the project's ``save_model`` wrote.

    Args:
        folder: folder of the files ``model.ckpt-<number>.<ending>``; created if missing.
        most: number of models to keep; a new model replaces the oldest.
    """

    def __init__(self, folder: Path, most: int = 1) -> None:
        self.folder, self._most = folder, most
        folder.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the numbers of all models in increasing order."""
        names = (path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        matches = map(_NUMBER.search, names)
        return sorted({int(match[1]) for match in matches if match})

    @property
    def latest(self) -> int | None:
        """The number of the newest model; None if there is no model."""
        return max(self.numbers(), default=None)

    def files(self, number: int) -> list[Path]:
        """Return the files of a model, sorted."""
        return sorted(path for path in self.folder.iterdir() if _is_of(path, number))

    def find(self, number: object, rng: random.Random | None = None) -> int:
        """Return the number of the model that a project's ``load_model(id=...)`` requests.

        Args:
            number: ``latest``, ``random`` (for play against earlier models), or a number.
            rng: generator for ``random``.

        Raises:
            ValueError: there is no such model; the message lists the existing ones.
        """
        numbers = self.numbers()
        if number == "latest" and numbers:
            return numbers[-1]
        if number == "random" and numbers:
            return (rng or random.Random()).choice(numbers)
        if str(number).isdigit() and int(str(number)) in numbers:
            return int(str(number))
        available = ", ".join(map(str, numbers)) or "none"
        raise ValueError(
            f"model {number!r} is not in {self.folder}, there are {available}; or ask for 'latest' or 'random'"
        )

    def put(self, number: int, files: Mapping[str, bytes]) -> None:
        """Write a model atomically for processes that `read` the pool, and delete the oldest if there are too many."""
        with self._locked():
            for name, content in files.items():
                with atomic_write(self.folder / Path(name).name) as path:
                    path.write_bytes(content)
            self.prune(number)

    def read(self, number: object = "latest", rng: random.Random | None = None) -> tuple[int, dict[str, bytes]]:
        """Return the number of a model and its files by name. Other processes may `put` models meanwhile.

        Args:
            number: as for `find`.
            rng: as for `find`.

        Raises:
            ValueError: there is no such model.
        """
        with self._locked():
            chosen = self.find(number, rng)
            return chosen, read_model(self.folder, chosen)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes out until the block ends; the system ends the lock of a killed process."""
        import fcntl  # not on Windows, where no run has several processes

        with (self.folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def prune(self, newest: int) -> None:
        """Delete the oldest models beyond the number to keep, but never the newest."""
        for number in self.numbers()[: -self._most]:
            if number != newest:
                for path in self.files(number):
                    path.unlink(missing_ok=True)


def _is_of(path: Path, number: int) -> bool:
    match = None if path.name.startswith(".") else _NUMBER.search(path.name)
    return match is not None and int(match[1]) == number


def read_model(folder: Path, number: int) -> dict[str, bytes]:
    """Return the files of a model by name.

    Raises:
        ValueError: there is no file of that number, which ``save_model`` must write as
            ``{path}/model.ckpt-{id}.<ending>``.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if _is_of(path, number)}
    if not files:
        raise ValueError(
            f"save_model wrote no file model.ckpt-{number} to {folder}: it must write to the path it is given, under "
            "a name that holds model.ckpt- and the id"
        )
    return files


def zip_model(target: Path, project: Path, models: Mapping[str, bytes], about: Mapping[str, object]) -> None:
    """Write a model and the project's code to a zip file, as the platform does.

    Args:
        target: the zip file, which is replaced if it exists.
        project: the project's directory; ``log``, ``ckpt``, caches and hidden files are left out.
        models: file name -> content, written under ``ckpt/``.
        about: metadata, written as ``kaiwu_model.json``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as path, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in _code(project):
            archive.write(source, source.relative_to(project).as_posix())
        for name, content in models.items():
            archive.writestr(f"ckpt/{name}", content)
        archive.writestr("kaiwu_model.json", json.dumps({**about, "saved": time.time()}, indent=2))


def _code(project: Path) -> Iterator[Path]:
    for path in sorted(project.rglob("*")):
        parts = path.relative_to(project).parts
        if path.is_file() and not any(part in _LEFT_OUT or part.startswith(".") for part in parts):
            yield path
