"""The tiers of tests, and what no tier runs.

Without pytest's option ``--tier`` the tests of all tiers run. A test belongs to the tier that its mark ``tier`` names,
else to the one that installs a package which the test passes to ``importorskip`` or ``find_spec``, else to ``base``.
The slow tests of the conformance kit are the tier ``kit``. All other slow tests but those of the house are the tier
``slow``, and so are the tests of plug-ins that start processes.

    python -m tests.tiers build/tiers     # after all tiers: list what was skipped in each of them
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

BASE = "base"
PACKAGES = {
    "learning": {
        "torch", "tianshou", "d3rlpy", "stable_baselines3", "onnx", "onnxruntime", "onnxscript", "ray", "tensorboard",
        "tokenizers", "fmpy", "huggingface_hub", "rerun", "wandb", "nbclient", "sgfmill",
        "duckdb", "polars", "pandas", "imageio", "grpc", "safetensors",
    },
    "docs": {"mkdocs", "mkdocstrings"},
    "browser": {"playwright", "axe_playwright_python"},
}  # fmt: skip
"""Tier -> packages that its part of launch/setup installs and the base tier's part does not."""
TIERS = (BASE, "slow", "docs", "pins", "core", "kit", "learning", "browser")
PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
KIT = PLUGINS / "kit"
HOUSE = Path(__file__).resolve().parent / "house"

ABSENT: dict[str, str] = {
    r"^a long run: give --soak|--soak runs it": "takes hours: by hand",
    r"lerobot|LeRobot|^datasets|torchvision": "LeRobot fixes versions that exclude ours",
    r"^robomimic": "fixes old versions of its dependencies",
    r"^(could not import )?'?(gem|verifiers|skyrl.gym|nemo.gym)\b": "each fixes versions, or takes gigabytes",
    r"verifiers since": "the test is for older releases",
    r"transformers|\btrl\b|tensorflow": "takes gigabytes",
    r"openenv": "its releases take gigabytes",
    r"TorchRL": "compared by hand, with PyTorch of the tier `learning`",
    r"zenoh-ros2-sdk": "another program's client, in an interpreter of its own: by hand",
    r"cyclonedds|unitree_sdk2|mjlab": "DDS has wheels for some machines alone; Unitree's and mjlab's code is not ours",
    r"pinocchio|yourdfpy": "compared by hand when the writer of URDF changes",
    r" lacks [a-z]": "needs other projects' servo drivers in an interpreter of --strangers",
    r"POLICY_STRANGERS": "needs the makers' own clients and servers of policies: by hand",
    r"kaiwu-projects|ROLL_CHECKOUT": "needs clones of public projects",
    r"^root may write everywhere": "continuous integration runs as root; a user has these tests in launch/test",
    r"moto's server": "a stand-in for object storage: by hand",
    r"(?i)warp|triton|\bgpu\b": "needs a GPU",
    r"Filament|Vulkan": "needs another release of MuJoCo, or a driver",
    r"MicroPython's unix port": "its build takes a compiler and MicroPython's sources: by hand",
    r"RLIMIT_RTPRIO|only root becomes": "rights over the scheduler: as root of a host, and as a user, by hand",
    r"gpio|GPIO": "needs a GPIO chip, or a kernel that simulates one",
    r"gstreamer": "needs a server of camera streams",
    r"npm install|NODE_PATH": "needs Node packages",
    r"^no node here": "needs Node",
    r"xvfb-run|glfw|OpenGL|faketime|is not installed: no (zsh|fish)|^(zsh|fish) is not": "needs Debian packages",
    r"tc on|iproute2|network namespace|disturbs no packets|unshare|right to": "needs rights, or tools, of the kernel",
    r"no C compiler": "needs a compiler",
    r"this kernel|systemd-analyze|may open": "needs a newer kernel or systemd, or higher limits",
    r"shared/data|data set|recorded episodes": "needs public data sets beside the checkout",
    r"their checker sees nothing": "compares nothing, by design",
    r"the cell changes nothing": "this cell of the grid of faults plants no fault in its subject",
}
"""Pattern of a reason to skip -> why no tier runs these tests."""


def tier_of(item: pytest.Item) -> str:
    """Return the tier that runs a test."""
    marker = item.get_closest_marker("tier")
    if marker is not None:
        return str(marker.args[0])
    asked = asked_packages(item.path)
    names = asked.get("", set()) | asked.get(getattr(item, "originalname", item.name), set())
    for tier, packages in PACKAGES.items():
        if names & packages:
            return tier
    folders = item.path.parents
    if item.get_closest_marker("slow") and HOUSE not in folders:
        return "kit" if KIT in folders else "slow"
    return "slow" if item.get_closest_marker("process") and PLUGINS in folders else BASE


_SLOW = re.compile(r"\bslow\b|\bIN_BROWSER\b")
_STARTS = re.compile(r"\bprocess\b|\bstart(_command)?\b|\bnetwork\b")
"""Words without which a file has no slow test, and no plug-in's file one that starts processes."""


@functools.cache
def may_hold(path: Path, tier: str) -> bool:
    """Return whether a file may have tests of a tier: others need not be imported."""
    if tier == BASE or not path.name.startswith("test_"):
        return True
    text = path.read_text(encoding="utf-8")
    marked = f'tier("{tier}")' in text
    if tier == "slow":
        return marked or bool(_SLOW.search(text)) or (PLUGINS in path.parents and bool(_STARTS.search(text)))
    asked = set[str]().union(*asked_packages(path).values())
    return marked or bool(asked & PACKAGES.get(tier, set())) or (tier == "kit" and KIT in path.parents)


@functools.cache
def asked_packages(path: Path) -> dict[str, set[str]]:
    """Return the packages without which a file's tests skip: of each function, and under ``""`` of the whole module."""
    asked: dict[str, set[str]] = {}
    text = path.read_text(encoding="utf-8")
    if "importorskip" not in text and "find_spec" not in text:
        return asked
    installed = set[str]().union(*PACKAGES.values())
    for statement in ast.parse(text).body:
        scope = asked.setdefault(statement.name if isinstance(statement, ast.FunctionDef) else "", set())
        words = {str(node.value) for node in ast.walk(statement) if isinstance(node, ast.Constant)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and re.search(r"\b(importorskip|find_spec)$", ast.unparse(node.func)):
                if isinstance(node.args[0], ast.Constant):
                    scope.add(str(node.args[0].value).partition(".")[0])
                else:  # a variable: of a loop, a comprehension or a parameter, which the same statement lists
                    scope.update(words & installed)
    return asked


def skipped_everywhere(reports: list[Path]) -> dict[str, str]:
    """Return the reason to skip of each test and module that ran in no report of pytest's ``--junitxml``."""
    ran: set[str] = set()
    reasons: dict[str, str] = {}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}".lstrip(".")
            skip = case.find("skipped")
            if skip is None:
                ran.update((name, str(case.get("classname"))))
            elif skip.get("type") != "pytest.xfail":
                message = skip.get("message") or ""
                if message == "collection skipped":  # a whole module; the text is a tuple of place and reason
                    message = str(ast.literal_eval(skip.text or "")[2])
                reasons[name] = message.removeprefix("Skipped: ")
    # A module that one tier skips as a whole, and another test by test, has reasons for its tests.
    modules = {name.rpartition(".")[0] for name in reasons}
    return {name: reason for name, reason in sorted(reasons.items()) if name not in ran | modules}


def main(folder: Path) -> int:
    """Print how many tests no tier ran for which reason; return 1 where ``ABSENT`` does not have the reason."""
    missing = [tier for tier in TIERS if not (folder / f"{tier}.xml").exists()]
    reasons = Counter(skipped_everywhere(sorted(folder.glob("*.xml"))).values())
    unknown = {reason for reason in reasons if not any(re.search(pattern, reason) for pattern in ABSENT)}
    for reason, count in sorted(reasons.items()):
        print(f"{'NOT LISTED ' if reason in unknown else ''}{count:4} tests ran in no tier: {reason}")
    for tier in missing:
        print(f"no report of the tier {tier} in {folder}")
    if unknown:
        print("Install what these tests need in a tier (launch/setup), or say in ABSENT of tests/tiers.py why not.")
    return 1 if unknown or missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
