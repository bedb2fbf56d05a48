"""Write ``environment.json`` and ``vector.json``, and draw the open third of the faults into ``open_a.json``."""

from __future__ import annotations

import json
import random
from pathlib import Path

import environment  # noqa: F401
import vector  # noqa: F401
from fault_set_a.registry import PREVENTED, SUBJECTS, manifest

HERE = Path(__file__).resolve().parent


def open_third() -> list[str]:
    """Return the ids of the open third of each part's faults; the others are held out."""
    drawn = []
    for part in ("environment", "vector"):
        ids = sorted(one.id for one in SUBJECTS if one.part == part and not one.good)
        drawn += random.Random(30).sample(ids, len(ids) // 3)
    return sorted(set(drawn) - PREVENTED)


def texts() -> dict[str, str]:
    """Return the contents of the files by their names."""
    lists: dict[str, list] = {f"{part}.json": manifest(part) for part in ("environment", "vector")}
    lists["open_a.json"] = open_third()
    return {
        name: "[\n" + ",\n".join(" " + json.dumps(one, ensure_ascii=False) for one in entries) + "\n]\n"
        for name, entries in lists.items()
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (HERE / name).write_text(text, encoding="utf-8")
