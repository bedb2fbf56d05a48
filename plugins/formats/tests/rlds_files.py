"""Write RLDS data sets by the definitions of TFRecord, ``tf.train.Example`` and ``features.json``."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Values = Mapping[str, Any]
"""Name -> the values of all steps: an array, or a list of bytes."""


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (RFC 3720, B.4), bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    checksum = crc32c(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + masked(head) + data + masked(data)


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(values: Any) -> bytes:
    if isinstance(values, list):
        return field(1, b"".join(field(1, one) for one in values))
    flat = np.asarray(values).reshape(-1)
    if flat.dtype.kind == "f":
        return field(2, field(1, flat.astype("<f4").tobytes()))
    return field(3, field(1, b"".join(map(varint, flat.tolist()))))


def example(values: Values) -> bytes:
    entries = (field(1, field(1, name.encode()) + field(2, feature(value))) for name, value in values.items())
    return field(1, b"".join(entries))


CLASSES = {
    "featuresDict": "features_dict.FeaturesDict", "tensor": "tensor_feature.Tensor", "text": "text_feature.Text",
    "image": "image_feature.Image", "sequence": "dataset_feature.Dataset",
}  # fmt: skip


def node(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    return {kind: content, "pythonClassName": f"tensorflow_datasets.core.features.{CLASSES[kind]}"}


def described(values: Values, images: Sequence[str]) -> dict[str, Any]:
    """Return the description of the values of steps, whose names are paths."""
    top = node("featuresDict", {"features": {}})
    for path, value in values.items():
        *parents, name = path.split("/")
        tree = top["featuresDict"]["features"]
        for parent in parents:
            tree = tree.setdefault(parent, node("featuresDict", {"features": {}}))["featuresDict"]["features"]
        if isinstance(value, list):
            sizes = {"dimensions": ["24", "32", "3"]}
            image = {"dtype": "uint8", "encodingFormat": "png", "shape": sizes}
            tree[name] = node("image", image) if path in images else node("text", {})
        else:
            value = np.asarray(value)
            shape = {"dimensions": [str(size) for size in value.shape[1:]]} if value.ndim > 1 else {}
            tree[name] = node("tensor", {"dtype": value.dtype.name, "encoding": "none", "shape": shape})
    return top


def write_rlds(
    root: Path,
    episodes: Sequence[tuple[Values, Values]],
    images: Sequence[str] = (),
    shards: Sequence[int] | None = None,
    split: str = "train",
) -> None:
    """Write a data set.

    Args:
        root: the folder.
        episodes: the values of each episode's steps, and its metadata, each with one value a name.
        images: names of the lists of bytes that are images.
        shards: number of the episodes in each file.
        split: name of the only split.
    """
    root.mkdir(parents=True)
    steps, metadata = episodes[0]
    about = {name: [one] if isinstance(one, bytes) else np.asarray([one]) for name, one in metadata.items()}
    features = {
        "steps": node("sequence", {"feature": described(steps, images), "length": "-1"}),
        "episode_metadata": described(about, ()),
    }
    (root / "features.json").write_text(json.dumps(node("featuresDict", {"features": features})))
    counts = list(shards or [len(episodes)])
    info = {
        "name": "made", "version": "1.0.0", "fileFormat": "tfrecord", "moduleName": "made",
        "splits": [{
            "name": split, "shardLengths": [str(count) for count in counts], "numBytes": "1",
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        }],
    }  # fmt: skip
    (root / "dataset_info.json").write_text(json.dumps(info))
    left = list(episodes)
    for index, count in enumerate(counts):
        some, left = left[:count], left[count:]
        values = (
            {f"steps/{name}": value for name, value in one.items()}
            | {
                f"episode_metadata/{name}": [v] if isinstance(v, bytes) else np.asarray([v])
                for name, v in about.items()
            }
            for one, about in some
        )
        content = b"".join(record(example(one)) for one in values)
        (root / f"made-{split}.tfrecord-{index:05d}-of-{len(counts):05d}").write_bytes(content)
