"""Write the card of an exported data set: its README, with the description that the Hugging Face Hub reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hal import Field
from recorder.json_data import JsonObject
from recorder.table.table import Table

__all__ = ["NAME", "card_text", "feature_table", "write_card_beside"]

NAME = "README.md"
"""The card's file in the folder of a data set."""
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
          (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip
"""Upper bound of the number of rows -> the Hub's size category."""
_GROUPS = ("observation", "action", "applied", "sensors")
_MOST_TASKS = 20
_RATED = 100
"""Number of episodes from which the rate is computed."""


def card_text(
    table: Table,
    kind: str,
    load: str,
    lost: Sequence[str],
    tags: Sequence[str] = (),
    data_files: str = "",
    features: str = "",
) -> str:
    """Return the text of a data set card, to which the owner of the data adds the licence.

    Args:
        table: the exported episodes.
        kind: the format's name and version, for readers.
        load: lines of Python that load the data set.
        lost: a sentence about each thing that the format can't hold.
        tags: the Hub's tags for the format.
        data_files: pattern of the Parquet files that the Hub shows as a table; empty for none.
        features: further columns of the data set, as a table in Markdown.
    """
    lengths = table.stops - table.starts
    frames, episodes = int(lengths.sum()), len(lengths)
    size = next((word for bound, word in _SIZES if frames < bound), "1B<n<10B")
    config = f"configs:\n- config_name: default\n  data_files: {data_files}\n" if data_files else ""
    words = "".join(f"- {tag}\n" for tag in (*tags, "rlenv-robot"))
    sections = [
        f"# {_title(table.episodes)}",
        f"{episodes} episodes, {frames - episodes} steps, {_rate(table)}, exported by rlenv-robot as {kind}.",
        f"## Load\n\n```python\n{load.strip()}\n```",
        f"## Fields\n\n{_fields(table)}",
        *([f"## Columns\n\n{features}"] if features else []),
        f"## Episodes\n\n{_episodes(table.episodes)}",
        "## Lost in this format\n\n" + ("\n".join(f"- {_plain(sentence)}" for sentence in lost) or "- nothing"),
        "## Licence\n\nNone was given yet. The owner of the data states it here, and above in place of `unknown`.",
    ]
    head = f"license: unknown\ntask_categories:\n- robotics\nsize_categories:\n- {size}\ntags:\n{words}{config}"
    return f"---\n{head}---\n\n" + "\n\n".join(sections) + "\n"


def write_card_beside(path: Path, text: str) -> list[str]:
    """Write the card of a single-file data set beside the file, with the suffix ``.md``.

    Returns:
        A note if a file of that name exists, which is not overwritten.
    """
    card = path.with_suffix(".md")
    try:
        with card.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return [f"{card} is there already; no data set card was written"]
    return []


def feature_table(features: JsonObject) -> str:
    """Return a Markdown table of a data set's columns: name -> a mapping with ``dtype`` and ``shape``."""
    rows = "\n".join(f"| `{_plain(name)}` | {about['dtype']} | {about['shape']} |" for name, about in features.items())
    return f"| feature | type | shape |\n|---|---|---|\n{rows}"


def _title(episodes: Sequence[JsonObject]) -> str:
    robot = next((str(info["robot"]) for info in episodes if info.get("robot")), "")
    tasks = list(dict.fromkeys(str(info.get("task") or "") for info in episodes))
    words = ", ".join(task for task in tasks[:_MOST_TASKS] if task)
    return _plain(": ".join(word for word in (robot, words) if word) or "Recorded episodes")[:200]


def _rate(table: Table) -> str:
    """Return the rate and the length of the episodes, by the stamps; the rate is that of the first ones."""
    spans = [(a, b) for a, b in zip(table.starts.tolist(), table.stops.tolist(), strict=True) if b - a > 1]
    stamps = table.rows["stamp_ns"]
    gaps = [np.diff(stamps[a:b]) for a, b in spans[:_RATED]]
    period = float(np.median(np.concatenate(gaps))) if gaps else 0.0
    if period <= 0:
        return "of unknown rate"
    seconds = sum(float(stamps[b - 1]) - float(stamps[a]) for a, b in spans) / 1e9
    return f"{1e9 / period:.4g} Hz, {seconds:.4g} s"


def _fields(table: Table) -> str:
    rows = [
        f"| {group} | `{field.name}` | {field.dtype} | {list(field.shape)} | {_elements(field)} | {_plain(field.unit)} "
        f"| {_range(field)} | {_plain(field.meaning)} |"
        for group in _GROUPS
        for field in getattr(table.layout, group)
    ]
    head = "| part | field | type | shape | elements | unit | range | meaning |\n|---|---|---|---|---|---|---|---|\n"
    return head + "\n".join(rows)


def _elements(field: Field) -> str:
    return ", ".join(map(_plain, field.elements))


def _range(field: Field) -> str:
    low, high = (np.unique(np.ravel(side)) for side in (field.low, field.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return ""
    return f"{low.min():.6g} to {high.max():.6g}"


def _episodes(episodes: Sequence[JsonObject]) -> str:
    """Count the episodes by what is known of all of them."""
    lines = []
    for key in ("success", "verdict", "source", "policy", "end", "task"):
        counts: dict[str, int] = {}
        for info in episodes:
            if info.get(key) is not None:
                value = _plain(str(info[key]))[:80]
                counts[value] = counts.get(value, 0) + 1
        if counts:
            listed = sorted(counts.items(), key=lambda one: -one[1])[:_MOST_TASKS]
            lines.append(f"- {key}: " + ", ".join(f"{value} ({count})" for value, count in listed))
    return "\n".join(lines) or "- nothing more is known of them"


def _plain(text: str) -> str:
    """Return a string that ends no cell, line or block of Markdown."""
    return " ".join(text.replace("|", "/").replace("`", "'").replace("<", "(").replace(">", ")").split())
