"""Write the golden files anew: ``python tests/golden/generate.py [NAME ...]``.

Only where a change of behaviour is wanted. What differs then is in the diff, and the commit says why.

On one and the same machine it also compares more strictly than the tests, which allow for other processors: after a
change that must not alter any number, run it, and ``git diff tests/golden/data`` is empty.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden import describe_log, describe_wire, list_keys, run_trajectories
from tests.golden.stored import write

FILES = {**describe_wire.FILES, **describe_log.FILES, **run_trajectories.FILES, **list_keys.FILES}


def main(names: list[str]) -> None:
    """Write the files of these names; all of them if there are none."""
    for name in names or FILES:
        path = write(name, FILES[name]())
        print(f"{path}  {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
