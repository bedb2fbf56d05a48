"""The names that `import rlenv_robot` offers, and the modules that it loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import rlenv_robot

EXTRAS = ("gymnasium", "pettingzoo", "torch")
"""The modules of extras that a name may need."""


def _missing_extra(name: str) -> str:
    """The module that a name needs and this machine lacks, if any."""
    try:
        getattr(rlenv_robot, name)
    except ModuleNotFoundError as missing:
        return missing.name or ""
    return ""


def _python(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    lines = [f"import sys; sys.path[:0] = {[str(path) for path in paths]}", code]
    return subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)


def test_everything_that_is_promised_is_there() -> None:
    assert rlenv_robot.__all__ == sorted(rlenv_robot.__all__)
    assert len(set(rlenv_robot.__all__)) == len(rlenv_robot.__all__)
    missing = {name for name, module in rlenv_robot._MODULE_OF.items() if not find_spec(module.partition(".")[0])}
    for name in rlenv_robot.__all__:
        assert name in dir(rlenv_robot)
        if name in missing:
            continue
        assert _missing_extra(name) in ("", *EXTRAS), name
    assert rlenv_robot.__version__ == version("rlenv-robot")


def test_all_exceptions_of_the_tree_are_there() -> None:
    import hal

    ours = {name for name in hal.__all__ if isinstance(getattr(hal, name), type) and issubclass(getattr(hal, name), Exception)}  # fmt: skip  # noqa: E501
    assert ours <= set(rlenv_robot.__all__)


def test_what_is_not_there_is_said_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'rlenv_robot' has no attribute 'mkae'"):
        _ = rlenv_robot.mkae


@pytest.mark.process
def test_the_import_loads_nothing_that_is_not_used() -> None:
    done = _python("import rlenv_robot; print(sorted({name.partition('.')[0] for name in sys.modules}))")
    heavy = {"numpy", "mujoco", "zmq", "cv2", "mcap", "foxglove", "msgpack", "hal", "sim", "real", "recorder"}
    assert heavy.isdisjoint(ast.literal_eval(done.stdout)), done.stderr


@pytest.mark.process
def test_a_simulation_needs_neither_network_nor_cameras_nor_a_recorder() -> None:
    code = """
import rlenv_robot
with rlenv_robot.make("so101-reach") as env:
    env.reset()
print(sorted({name.partition(".")[0] for name in sys.modules} | {name for name in sys.modules if "camera" in name}))
"""
    done = _python(code)
    heavy = {"zmq", "cv2", "mcap", "foxglove", "msgpack", "pydantic", "real", "hal.cameras.camera", "http"}
    assert heavy.isdisjoint(ast.literal_eval(done.stdout)), done.stderr


@pytest.mark.process
def test_make_stays_a_function_whatever_is_imported_first() -> None:
    done = _python("import rlenv_robot.registry, rlenv_robot.vector.env; print(callable(rlenv_robot.make))")
    assert done.stdout.strip() == "True", done.stderr


def test_a_name_of_a_missing_plugin_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(rlenv_robot), "check_robot", raising=False)
    monkeypatch.setattr(rlenv_robot, "_plugin_names", tuple)
    with pytest.raises(
        ModuleNotFoundError, match=r"rlenv_robot\.check_robot is in the plug-in rlenv_kit, which is not"
    ):
        _ = rlenv_robot.check_robot
