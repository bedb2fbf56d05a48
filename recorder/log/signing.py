"""Sign plain data with Ed25519 (RFC 8032): key files, canonical JSON, signatures and their verification."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from hal.field import JsonDict

__all__ = ["Signature", "canonical", "sign", "verify"]

Signature = dict[str, str]
"""A public key under ``key`` and a signature under ``ed25519``, both in hexadecimal digits."""


def canonical(value: object) -> bytes:
    """Return plain data as JSON in its unique canonical form: sorted keys, no spaces, ASCII.

    Raises:
        ValueError: a number is not finite.
        TypeError: the value is not plain data.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def sign(content: bytes, key: str | Path) -> Signature:
    """Return a signature over bytes.

    Args:
        content: the bytes to sign.
        key: file of the private key, 64 hexadecimal digits. A missing one is made, readable only by its owner.

    Raises:
        ValueError: the file does not have such a key, or other users can read it.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = Path(key)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(Ed25519PrivateKey.generate().private_bytes_raw().hex() + "\n")
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path}: others can read this private key; chmod 600 {path}")
    try:
        private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except ValueError:
        raise ValueError(f"{path} holds no private key of 64 hexadecimal digits") from None
    return {"key": private.public_key().public_bytes_raw().hex(), "ed25519": private.sign(content).hex()}


def verify(content: bytes, signature: Mapping[str, str] | JsonDict) -> str:
    """Verify a signature over bytes, and return the public key of the signer, as 64 hexadecimal digits.

    A signature does not identify the key's owner: compare the key with the one that its owner gave you.

    Raises:
        ValueError: the signature can't be read, or does not match the bytes.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key, text = str(signature["key"]), str(signature["ed25519"])
        raw_key, raw_signature = bytes.fromhex(key), bytes.fromhex(text)
        if (raw_key.hex(), raw_signature.hex()) != (key, text):
            raise ValueError("digits that are not in their one form")
        Ed25519PublicKey.from_public_bytes(raw_key).verify(raw_signature, content)
    except InvalidSignature:
        raise ValueError("the signature does not fit: the content was changed after it was signed") from None
    except (KeyError, TypeError, ValueError):
        raise ValueError("there is no signature that can be read") from None
    return key
