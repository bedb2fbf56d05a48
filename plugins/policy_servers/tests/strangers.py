"""Make the environments of the makers' own clients and servers, and run the tests that need them.

    git clone https://github.com/Physical-Intelligence/openpi
    git clone https://github.com/NVIDIA/Isaac-GR00T
    git clone https://github.com/huggingface/lerobot && git -C lerobot fetch origin pull/3048/head:safe
    python plugins/policy_servers/tests/strangers.py /tmp/strangers --openpi openpi --groot Isaac-GR00T \
        --lerobot lerobot --safe lerobot@safe

A source is a clone, a clone with ``@REVISION``, or a folder with the files. What is not given is not made anew, and the
tests of what was never made skip. Nothing of the sources is installed or changed; their files are copied.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

VARIABLE = "RLENV_ROBOT_POLICY_STRANGERS"
"""The environment variable with the folder that this script fills."""

OPENPI = ("numpy==1.26.4", "typing_extensions", "openpi-client==0.1.2", "pyzmq>=26")
LEROBOT = ("torch", "safetensors", "grpcio", "protobuf>=6.31", "numpy")

_UTILS = '''"""Stand in for gr00t.data.utils, which imports the model's configuration."""
from dataclasses import asdict
from enum import Enum


def to_json_serializable(value):
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {key: to_json_serializable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_serializable(one) for one in value]
    return to_json_serializable(asdict(value)) if hasattr(value, "__dataclass_fields__") else value
'''


def text(source: str, path: str) -> str:
    """Return a file of a clone or folder."""
    place, _, revision = source.partition("@")
    if not revision and (Path(place) / path).is_file():
        return (Path(place) / path).read_text(encoding="utf-8")
    command = ["git", "-C", place, "show", f"{revision or 'HEAD'}:{path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def environment(folder: Path, packages: tuple[str, ...]) -> None:
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)


def make_openpi(root: Path, source: str) -> None:
    environment(root / "openpi", OPENPI)
    path = "src/openpi/serving/websocket_policy_server.py"
    write(root / "tree" / "websocket_policy_server.py", text(source, path))


def make_groot(root: Path, source: str) -> None:
    environment(root / "openpi", OPENPI)
    for path in ("policy/server_client.py", "policy/policy.py", "policy/__init__.py", "data/types.py",
                 "data/embodiment_tags.py"):  # fmt: skip
        write(root / "tree" / "gr00t" / path, text(source, f"gr00t/{path}"))
    write(root / "tree" / "gr00t" / "data" / "utils.py", _UTILS)
    write(root / "tree" / "gr00t" / "data" / "__init__.py", "")
    write(root / "tree" / "gr00t" / "__init__.py", "")


def make_lerobot(root: Path, source: str, safe: str) -> None:
    environment(root / "lerobot", LEROBOT)
    tree = root / "tree" / "lerobot"
    for path in ("transport/services_pb2.py", "transport/services_pb2_grpc.py", "configs/types.py"):
        write(tree / path, text(source, f"src/lerobot/{path}"))
    utils = text(source, "src/lerobot/transport/utils.py")
    streams = re.search(r"\nCHUNK_SIZE.*?(?=\ndef state_to_bytes)", utils, re.S)
    classes = re.search(r"@dataclass\nclass TimedData.*?(?=@dataclass\nclass FPSTracker)",
                        text(source, "src/lerobot/async_inference/helpers.py"), re.S)  # fmt: skip
    config = re.search(r"@dataclass\nclass RemotePolicyConfig.*?(?=\n\ndef )",
                       text(source, "src/lerobot/async_inference/helpers.py"), re.S)  # fmt: skip
    if not (streams and classes and config):
        raise SystemExit("LeRobot's files have another form now")
    head = "import io\nimport logging\nfrom queue import Queue\nfrom typing import Any\nfrom . import services_pb2\n"
    head += "MpEvent = Any\nTransferState = services_pb2.TransferState\n"
    write(tree / "transport" / "utils.py", head + streams[0])
    head = "from dataclasses import dataclass, field\nfrom typing import Any\n"
    head += "PolicyFeature = Action = RawObservation = Any\n"
    write(tree / "async_inference" / "helpers.py", head + classes[0] + config[0])
    path = "src/lerobot/async_inference/safe_serialization.py"
    folder_file = Path(safe) / "safe_serialization.py"
    content = folder_file.read_text(encoding="utf-8") if folder_file.is_file() else text(safe, path)
    write(tree / "async_inference" / "safe_serialization.py", content)
    for folder in ("", "transport", "configs", "async_inference"):
        write(tree / folder / "__init__.py", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    for name in ("openpi", "groot", "lerobot", "safe"):
        parser.add_argument(f"--{name}", metavar="SOURCE")
    args = parser.parse_args()
    if bool(args.lerobot) != bool(args.safe):
        parser.error("--lerobot and --safe belong together")
    if args.openpi:
        make_openpi(args.root, args.openpi)
    if args.groot:
        make_groot(args.root, args.groot)
    if args.lerobot:
        make_lerobot(args.root, args.lerobot, args.safe)
    tests = [str(Path(__file__).parent / name) for name in ("test_strangers.py", "test_language_and_vision.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *tests]
    return subprocess.call(command, env={**os.environ, VARIABLE: str(args.root.absolute())})


if __name__ == "__main__":
    sys.exit(main())
