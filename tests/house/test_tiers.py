"""Each test belongs to one tier, and a test that no tier runs is on a list with the reason."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.house import ROOT, listing, shown
from tests.tiers import ABSENT, PACKAGES, TIERS, asked_packages, main, skipped_everywhere

MODULE = """
import importlib.util
import pytest
{first}
def test_one(): pytest.importorskip("no_such_package", reason="no_such_package is not installed")
def test_two(): pass
"""


def report(folder: Path, tiers: tuple[str, ...], first: str = "") -> None:
    """Run a module of tests with pytest, and leave its report as that of each tier."""
    file = folder / "suite" / "test_it.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(MODULE.format(first=first))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(file.parent)]
    command += ["-c", "/dev/null", f"--junitxml={folder / tiers[0]}.xml", str(file)]
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    for tier in tiers[1:]:
        shutil.copy(folder / f"{tiers[0]}.xml", folder / f"{tier}.xml")


def test_a_module_that_every_tier_skips_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, TIERS, 'pytest.importorskip("no_such_package", reason="no_such_package is not installed")')
    assert [*skipped_everywhere(sorted(tmp_path.glob("*.xml"))).values()] == ["no_such_package is not installed"]
    assert main(tmp_path) == 1
    assert "NOT LISTED" in capsys.readouterr().out


def test_one_tier_that_runs_a_test_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path, TIERS, 'pytest.importorskip("no_such_package")')
    report(tmp_path, ("learning",))
    reasons = skipped_everywhere(sorted(tmp_path.glob("*.xml")))
    assert [name.rpartition(".")[2] for name in reasons] == ["test_one"], "test_two and the module ran"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ABSENT, r"no_such_package", "it does not exist")
        assert main(tmp_path) == 0
        (tmp_path / "kit.xml").unlink()
        assert main(tmp_path) == 1
    assert "no report of the tier kit" in capsys.readouterr().out


def test_the_tiers_are_those_of_launch_test() -> None:
    usage = re.search(r"\[--tier ([\w|]+)\]", (ROOT / "launch" / "test").read_text())
    assert usage is not None
    assert {"base", *usage[1].split("|")} == set(TIERS) >= PACKAGES.keys()
    assert [tier for tier in TIERS if tier not in (ROOT / ".ci" / "run").read_text()] == []


def test_each_package_that_tests_ask_for_is_in_a_tier() -> None:
    """A package that is neither here nor in a tier's set is in no tier: its tests would never run."""
    tiers = set[str]().union(*PACKAGES.values())
    offenders = [
        f"{shown(path)}: {package}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for package in sorted(set[str]().union(*asked_packages(path).values()) - tiers)
        if not any(re.search(pattern, package) for pattern in ABSENT) and importlib.util.find_spec(package) is None
    ]
    assert not offenders, listing([*offenders, "install it in launch/setup, or say why not in tests/tiers.py"])
