"""A certificate says what was checked and what was not, is refused after any change, and is the source of a badge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rlenv_kit.certificate import badge_endpoint, badge_svg, conformance, read, sign, standard_digest, verify, write
from rlenv_kit.report import Check, Note, Report
from rlenv_kit.standard import statements
from rlenv_robot.cli.main import main

pytestmark = pytest.mark.requirement("R4.3")

PASSED = Report(
    "environment x",
    (
        Check("a reset begins an episode", "6.2.2.1-1", True, number=1, key="reset"),
        Check("an illegal action is refused", "6.2.1-6 6.2.1-7", True, number=2, key="refusals"),
        Check("it is told", "6.2.1-7", None, "nothing is told here", number=3, key="told"),
        Check("messages arrive", "B.3.2-3", None, "there are no agents", number=4, key="messages"),
    ),
    (Note("6.4-b", "a list"),),
    spec_digest="ab" * 32,
    steps=70,
)


def _certificate() -> dict[str, Any]:
    return conformance([PASSED], "x", steps=30, seed=4)


def test_it_holds_each_statement_with_its_verdict_and_what_was_not_tried() -> None:
    certificate = _certificate()
    verdicts = certificate["statements"]
    assert verdicts.keys() == statements().keys()
    assert [verdicts[name] for name in ("6.2.2.1-1", "6.2.1-6", "6.2.1-7", "B.3.2-3", "5-1")] == [
        "passed", "passed", "passed in part", "not tried", "no check",
    ]  # fmt: skip
    assert [one["reason"] for one in certificate["not_tried"]] == ["nothing is told here", "there are no agents"]
    assert certificate["standard"]["sha256"] == standard_digest()
    (part,) = certificate["subject"]["parts"]
    assert (part["spec_digest"], part["calls_of_step"]) == ("ab" * 32, 70)
    assert (certificate["seed"], certificate["notes"]) == (4, [{"clause": "6.4-b", "text": "a list"}])


@pytest.mark.parametrize("change", [{"passed": False}, {"passed": None, "reached": False}])
def test_a_subject_with_a_failure_gets_none(change: dict[str, Any]) -> None:
    checks = (*PASSED.checks[:1], replace(PASSED.checks[1], **change))
    with pytest.raises(ValueError, match="no certificate"):
        conformance([replace(PASSED, checks=checks)], "x", steps=30, seed=0)
    with pytest.raises(ValueError, match="no check was made"):
        conformance([replace(PASSED, checks=PASSED.checks[2:])], "x", steps=30, seed=0)


def test_a_change_of_any_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write(path, sign(_certificate(), tmp_path / "key"))
    verify(read(path))
    content = path.read_bytes()
    for place in range(len(content)):
        for other in (content[place] ^ 1, 0x20):
            if other == content[place]:
                continue
            path.write_bytes(content[:place] + bytes([other]) + content[place + 1 :])
            with pytest.raises(ValueError, match="certificate"):
                verify(read(path))
    for changed in (content + b"\n", content[:-1], content.replace(b'"seed": 4', b'"seed": 4, "seed": 4')):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="certificate"):
            verify(read(path))


def test_the_command_certifies_verifies_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key, badge = tmp_path / "c.json", tmp_path / "lab.key", tmp_path / "badge.svg"
    planted = Path(__file__).with_name("frame_faults.py")
    good = Path(__file__).with_name("plain.py")
    common = ["--certificate", str(certificate), "--key", str(key)]
    assert main(["check", f"{planted}:NanLate", *common]) == 1
    assert not certificate.exists()
    assert "no certificate was written" in capsys.readouterr().out
    assert main(["check", f"{good}:Sleds", *common, "--seed", "3"]) == 0
    assert "were not tried" in capsys.readouterr().out
    verified = ["robot", "certify", "--verify", str(certificate)]
    assert main([*verified, "--badge", str(badge), "--badge", str(tmp_path / "badge.json")]) == 0
    shown = capsys.readouterr().out
    plain = json.loads(certificate.read_text())
    assert verify(plain) in shown
    assert all(f"#{one['number']} {one['name']}: {one['reason']}" in shown for one in plain["not_tried"])
    assert plain["seed"] == 3
    assert plain["subject"]["parts"][0]["calls_of_step"] > 100
    assert ElementTree.parse(badge).getroot().get("aria-label", "").startswith("T/CCF 0002-2025: ")
    assert json.loads((tmp_path / "badge.json").read_text()) == badge_endpoint(plain)
    certificate.write_text(certificate.read_text().replace('"ok"', '"not tried"', 1))
    assert main(verified) == 2


def test_a_certificate_needs_a_key_and_all_checks(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--certificate", "c.json"], ["--certificate", "c.json", "--key", "k", "--reproduce", "3"]):
        assert main(["check", "go", *arguments]) == 2
        assert "--certificate needs" in capsys.readouterr().err
    assert main(["robot", "certify", "--badge", "badge.svg"]) == 2
    assert "--badge needs --verify" in capsys.readouterr().err


def test_the_badge_says_what_was_not_tried_and_takes_any_name() -> None:
    certificate = conformance([PASSED], '<x> & "y"', steps=30, seed=0)
    root = ElementTree.fromstring(badge_svg(certificate))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["T/CCF 0002-2025", "2 passed, 2 not tried"]
    with pytest.raises(ValueError, match="badge"):
        badge_svg({"format": "another"})
