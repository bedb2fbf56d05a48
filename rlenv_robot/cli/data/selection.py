"""Which episodes are meant, as people write it: ``3``, ``0,2,5-9``, ``12-``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

__all__ = ["Choice", "choice"]

_RANGE = re.compile(r"(\d+)(?:(-)(\d*))?")
_LARGEST = 2**31


class Choice:
    """Numbers of episodes, some of them perhaps without an end.

    Args:
        ranges: first and last of each, both included; None as the last takes all from the first on.
    """

    def __init__(self, ranges: Sequence[tuple[int, int | None]]) -> None:
        self.ranges = tuple(ranges)

    def among(self, there: Sequence[int]) -> list[int]:
        """The chosen ones, in order.

        Args:
            there: numbers of the episodes that there are.

        Raises:
            ValueError: one that is named by its number is not there, or none is chosen.
        """
        known = set(there)
        for first, last in self.ranges:
            for edge in {first, first if last is None else last} - known:
                least, most = min(known, default=-1), max(known, default=-1)
                which = f"there are {least} to {most}" if known else "there are none"
                raise ValueError(f"there is no episode {edge}, {which}")
        return [n for n in there if any(first <= n and (last is None or n <= last) for first, last in self.ranges)]


def choice(text: str) -> Choice:
    """Read it; for argparse.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{part!r} is no episode; wanted such as 3, or 0,2,5-9, or 12-")
        first, dash, last = int(match[1]), match[2], match[3]
        stop = int(last) if last else (None if dash else first)
        if first >= _LARGEST or (stop is not None and not first <= stop < _LARGEST):
            raise argparse.ArgumentTypeError(f"{part!r} is no range of episodes; the first comes first")
        ranges.append((first, stop))
    return Choice(ranges)
