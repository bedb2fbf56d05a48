"""Score of the conformance kit: planted faults that it sees, and correct subjects that it accuses, for each part.

A set is a manifest, a JSON list, and the modules beside it. An entry has:

* ``id``: its name, once in the set;
* ``part``: ``environment``, ``robot``, ``vector``, ``source`` or ``language``;
* ``factory``: ``module.py:function`` in the folder of the manifest's name beside it; or ``subject``, another name that
  ``rlenv-robot check`` takes;
* ``good``: whether it is a correct subject, which must not be accused;
* ``what``: one line on the fault;
* ``statement``: the id of the statement that it breaks, ``contract`` or ``robot``.

Each subject is checked as a user checks it, by ``rlenv-robot check`` in a process of its own. A fault is seen if a
check fails. A subject that can't be judged, or one that reaches its time limit, is listed and counts as not seen.

``--planted`` scores the faults of the kit's tests, which its authors know. The published figures are of sets that were
written before their author read the kit. ``--out`` adds them to a file, from which ``--page`` makes the table of
docs/conformance.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "benchmarks" / "kit_score.json", ROOT / "docs" / "conformance.md"
PARTS = {
    "environment": "environments", "robot": "robots", "vector": "batches", "source": "source data",
    "language": "other languages",
}  # fmt: skip
BEGIN, END = "<!-- score: begin -->\n", "<!-- score: end -->"
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["plugins.kit.tests.test_faults"])
KEYS = {"id", "part", "good", "what", "statement"}

Entry = dict[str, Any]
Result = dict[str, Any]


# -- Sets ------------------------------------------------------------------------------------------------------


def read_set(manifest: Path) -> list[Entry]:
    """Return the entries of a set, each with the ``subject`` for ``rlenv-robot check`` and the ``folder`` of the call.

    Raises:
        ValueError: an entry lacks a key, has an unknown part, or an id stands twice.
    """
    entries = json.loads(manifest.read_text(encoding="utf-8"))
    ids = [entry.get("id") for entry in entries]
    for entry in entries:
        missing = KEYS - entry.keys() | (set() if {"factory", "subject"} & entry.keys() else {"factory"})
        if missing:
            raise ValueError(f"{manifest}: {entry.get('id')!r} lacks {', '.join(sorted(missing))}")
        if entry["part"] not in PARTS:
            raise ValueError(f"{manifest}: {entry['id']!r} is of {entry['part']!r}, allowed are {', '.join(PARTS)}")
        if ids.count(entry["id"]) > 1:
            raise ValueError(f"{manifest}: {entry['id']!r} stands twice, an id stands once")
    folder = manifest.with_suffix("")
    return [{"subject": entry.get("factory"), "folder": str(folder if folder.is_dir() else manifest.parent), **entry}
            for entry in entries]  # fmt: skip


def judged(entry: Entry, limit_s: float) -> Result:
    """Check an entry's subject on the command line, and return its result."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "rlenv_robot", "check", entry["subject"], "--yes", "--report", str(report),
                   "--time-limit", f"{limit_s:g}"]  # fmt: skip
        try:
            # A subject that is killed only by its own parent gets the judge's grace on top.
            ended = subprocess.run(
                command, cwd=entry["folder"], capture_output=True, text=True, timeout=limit_s + 180, check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return _result(entry, None, "the command did not end")
        if not report.exists():
            return _result(entry, None, (ended.stderr.strip().splitlines() or ["no report was written"])[-1])
        failed = [check for one in json.loads(report.read_text(encoding="utf-8")) for check in one["checks"]
                  if check["passed"] is False]  # fmt: skip
    return _of_findings(entry, [(check["clause"], check["name"], check["message"]) for check in failed])


def _of_findings(entry: Entry, failed: Sequence[tuple[str, str, str]]) -> Result:
    if failed and all("reached its time limit" in message for _, _, message in failed):
        return _result(entry, None, failed[0][2])
    clause, name, message = failed[0] if failed else ("", "", "")
    named = any(entry["statement"] in clause.split() for clause, _, _ in failed)
    return _result(entry, bool(failed), f"{name}: {message}" if failed else "", clause, named)


def _result(entry: Entry, failed: bool | None, finding: str = "", clause: str = "", named: bool = False) -> Result:
    return {**{key: entry[key] for key in KEYS}, "failed": failed, "finding": finding, "clause": clause, "named": named}


def _planted() -> list[Entry]:
    """Return the faults and the correct subjects of the kit's tests as entries."""
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    from plugins.kit.tests import test_faults
    from rlenv_kit import check_robot, check_source

    rows = (test_faults._sled_rows, test_faults._lander_rows, test_faults._cart_rows)
    parts = {check_source: "source", check_robot: "robot", test_faults._repeatable: "robot",
             **dict.fromkeys(rows, "vector")}  # fmt: skip
    faults = [(name, check, False) for name, (check, _) in test_faults.FAULTS.items()]
    good = [(f"good {name}", check, True) for name, (check, _) in test_faults.GOOD.items()]
    return [{"id": name, "part": parts.get(check, "environment"), "good": is_good, "what": "", "statement": ""}
            for name, check, is_good in [*faults, *good]]  # fmt: skip


def judged_here(entry: Entry, limit_s: float) -> Result:
    """Check a subject of the kit's tests by the test's own call, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        process = _FORKS.Process(target=_judge_planted, args=(entry, str(out)))
        process.start()
        process.join(limit_s)
        if process.is_alive():
            process.kill()
            process.join()
            return _result(entry, None, f"its process did not end within {limit_s:g} s")
        if not out.exists():
            return _result(entry, None, f"its process ended with exit code {process.exitcode}, and no result")
        return json.loads(out.read_text(encoding="utf-8"))


def _judge_planted(entry: Entry, out: str) -> None:
    from plugins.kit.tests import test_faults

    name = entry["id"]
    if entry["good"]:
        check, made = test_faults.GOOD[name.removeprefix("good ")]
        report = check(made)
    else:
        check, fault = test_faults.FAULTS[name]
        report = check(fault.made, deadlines=test_faults._deadlines(name))
    result = _of_findings(entry, [(one.clause, one.name, one.message) for one in report.failures])
    Path(out).write_text(json.dumps(result), encoding="utf-8")
    os._exit(0)  # threads that a fault left behind do not hold it up


# -- Score -----------------------------------------------------------------------------------------------------


def score(results: Iterable[Result]) -> dict[str, Any]:
    """Return for each part the numbers of faults and correct subjects, and the ids that count against the kit."""
    results, parts = list(results), dict[str, Any]()
    for part in PARTS:
        faults = [one for one in results if one["part"] == part and not one["good"]]
        good = [one for one in results if one["part"] == part and one["good"]]
        if not faults and not good:
            continue
        seen = [one for one in faults if one["failed"]]
        parts[part] = {
            "faults": len(faults), "seen": len(seen), "named": sum(one["named"] for one in seen),
            "good": len(good), "accused": sum(bool(one["failed"]) for one in good),
            "missed": sorted(one["id"] for one in faults if not one["failed"]),
            "accusations": sorted(one["id"] for one in good if one["failed"]),
            "unjudged": sorted(one["id"] for one in [*faults, *good] if one["failed"] is None),
        }  # fmt: skip
    return parts


def table(data: dict[str, Any]) -> str:
    """Return the table of the page: a row for each part of each set."""
    lines = ["| set | part | faults | seen | correct subjects | accused |", "|---|---|---|---|---|---|"]
    for name, entry in data["sets"].items():
        for part, row in entry["parts"].items():
            share = f" ({row['seen'] / row['faults']:.1%})" if row["faults"] else ""
            lines.append(f"| {name} | {PARTS[part]} | {row['faults']} | {row['seen']}{share} | {row['good']} | "
                         f"{row['accused']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def with_table(page: str, data: dict[str, Any]) -> str:
    """Return the page with its table made from the data.

    Raises:
        ValueError: the page has no place for the table.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for the table: {BEGIN.strip()} and {END}")
    return f"{before}{begin}\n{table(data)}\n{end}{after}"


def _run(entries: list[Entry], jobs: int, judge: Callable[[Entry], Result]) -> list[Result]:
    results = []
    with ThreadPoolExecutor(jobs) as pool:
        for done, result in enumerate(pool.map(judge, entries), 1):
            results.append(result)
            wrong = result["failed"] is None or result["failed"] == result["good"]
            if wrong:
                word = {None: "unjudged", True: "accused", False: "missed"}[result["failed"]]
                print(
                    f"{word:9} {result['id']}: {result['what']} [{result['statement']}] {result['finding']}", flush=True
                )
            if done % 20 == 0:
                print(f"{done} of {len(entries)}", file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Score sets; return 1 if a fault was missed or a correct subject accused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", nargs="*", type=Path, help="the sets' manifests")
    parser.add_argument("--planted", action="store_true", help="score the faults of the kit's tests")
    parser.add_argument("--name", help="of the set, in the table; by default the names of the manifests")
    parser.add_argument("--part", choices=PARTS, help="score one part")
    parser.add_argument("--only", help="score the entries whose id contains this")
    parser.add_argument("--jobs", type=int, default=2, help="subjects at once (default: 2)")
    parser.add_argument("--time-limit", type=float, default=300.0, help="of a subject, seconds (default: 300)")
    parser.add_argument("--results", type=Path, help="write each subject's finding there, as JSON")
    parser.add_argument("--out", type=Path, help=f"add the score to this file, such as {DATA.relative_to(ROOT)}")
    parser.add_argument("--page", action="store_true", help="write the table of docs/conformance.md, and end")
    args = parser.parse_args()
    if args.page:
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), json.loads(DATA.read_text("utf-8"))), "utf-8")
        return 0
    if bool(args.manifests) == args.planted:
        parser.error("name manifests, or give --planted")
    entries = _planted() if args.planted else [entry for path in args.manifests for entry in read_set(path)]
    entries = [one for one in entries if args.part in (None, one["part"]) and (args.only or "") in one["id"]]

    judge = judged_here if args.planted else judged
    results = _run(entries, args.jobs, lambda entry: judge(entry, args.time_limit))
    parts = score(results)
    for part, row in parts.items():
        print(f"{PARTS[part]}: seen {row['seen']} of {row['faults']} ({row['named']} by their statement), accused "
              f"{row['accused']} of {row['good']}, unjudged {len(row['unjudged'])}")  # fmt: skip
    if args.results:
        args.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if args.out:
        data = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {"sets": {}}
        name = args.name or ("tests of the kit" if args.planted else ", ".join(path.stem for path in args.manifests))
        data["sets"][name] = {"parts": parts}
        args.out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return int(any(row["missed"] or row["accusations"] or row["unjudged"] for row in parts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
