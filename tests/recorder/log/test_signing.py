"""Signatures: what was signed is verified, and nothing else; keys stay private."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from recorder.log.signing import canonical, sign, verify


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    key = tmp_path / "keys" / "lab.key"
    first, second = sign(b"a", key), sign(b"b", key)
    assert first["key"] == second["key"] == verify(b"a", first) == verify(b"b", second)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.chmod(0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        sign(b"a", key)


def test_other_content_and_other_signatures_are_refused(tmp_path: Path) -> None:
    signature = sign(b"content", tmp_path / "key")
    other = sign(b"content", tmp_path / "other")
    for content, wrong in (
        (b"Content", signature),
        (b"content", {**signature, "key": other["key"]}),
        (b"content", {**signature, "ed25519": other["ed25519"]}),
        (b"content", {**signature, "ed25519": "00"}),
        (b"content", {"key": signature["key"]}),
        (b"content", {}),
    ):
        with pytest.raises(ValueError, match="signature"):
            verify(content, wrong)


def test_a_file_without_a_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    with pytest.raises(ValueError, match="64 hexadecimal"):
        sign(b"a", tmp_path / "key")


def test_openssl_takes_the_signature(tmp_path: Path) -> None:
    """RFC 8032 as another implementation has it; RFC 8410 §4 gives the head of the public key's DER."""
    signature = sign(b"signed here, verified there", tmp_path / "key")
    (tmp_path / "public.der").write_bytes(bytes.fromhex("302a300506032b6570032100" + signature["key"]))
    (tmp_path / "signature").write_bytes(bytes.fromhex(signature["ed25519"]))
    (tmp_path / "content").write_bytes(b"signed here, verified there")
    command = "openssl pkeyutl -verify -pubin -keyform DER -inkey public.der -rawin -in content -sigfile signature"
    try:
        answer = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_canonical_json_has_one_form() -> None:
    assert canonical({"b": [1, 2.5], "a": "ü"}) == b'{"a":"\\u00fc","b":[1,2.5]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical(float("nan"))
