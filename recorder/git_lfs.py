"""Recognise the pointer that Git LFS leaves in place of a file that was not fetched."""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_git_lfs", "git_lfs_advice", "is_git_lfs_pointer"]

_BEGINS = b"version https://git-lfs.github.com/spec/"
"""The first line of a pointer: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md."""


def git_lfs_advice(head: bytes) -> str:
    """Return a remedy if a file that begins with these bytes is a pointer; empty if it is not.

    Args:
        head: the file's first bytes, at least 8 of them.
    """
    if len(head) >= 8 and (head.startswith(_BEGINS) or _BEGINS.startswith(head)):
        return "is a Git LFS pointer in place of the file itself; run `git lfs pull` in its repository"
    return ""


def is_git_lfs_pointer(path: Path) -> bool:
    """Return whether a file is a pointer; False if it can't be read."""
    try:
        with path.open("rb") as file:
            return bool(git_lfs_advice(file.read(len(_BEGINS))))
    except OSError:
        return False


def find_git_lfs(folder: Path, most: int = 200) -> Path | None:
    """Return a Git LFS pointer among the first files in a folder or below it, or None."""
    looked = 0
    for path in folder.rglob("*") if folder.is_dir() else (folder,):
        if path.is_file():
            looked += 1
            if is_git_lfs_pointer(path):
                return path
        if looked >= most:
            return None
    return None
