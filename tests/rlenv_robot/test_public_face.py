"""What `import rlenv_robot` gives, what it costs, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import rlenv_robot
from rlenv_robot.config.import_check import PACKAGES


def _python(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    lines = [f"import sys; sys.path[:0] = {[str(path) for path in paths]}", code]
    return subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)


def test_everything_that_is_promised_is_there() -> None:
    assert rlenv_robot.__all__ == sorted(rlenv_robot.__all__)
    assert len(set(rlenv_robot.__all__)) == len(rlenv_robot.__all__)
    for name in rlenv_robot.__all__:
        assert getattr(rlenv_robot, name) is not None
        assert name in dir(rlenv_robot)
    assert rlenv_robot.__version__ == version("rlenv-robot")


def test_all_exceptions_of_the_tree_are_there() -> None:
    import hal

    ours = {name for name in hal.__all__ if isinstance(getattr(hal, name), type) and issubclass(getattr(hal, name), Exception)}  # fmt: skip  # noqa: E501
    assert ours <= set(rlenv_robot.__all__)


def test_what_is_not_there_is_said_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'rlenv_robot' has no attribute 'mkae'"):
        _ = rlenv_robot.mkae


@pytest.mark.process
def test_the_import_is_light() -> None:
    heavy = {"mujoco", "zmq", "cv2", "mcap", "foxglove", "msgpack", "gymnasium", "pyarrow", "matplotlib", "rich"}
    done = _python(f"import rlenv_robot; print(sorted({heavy} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.process
def test_make_stays_a_function_whatever_is_imported_first() -> None:
    done = _python("import rlenv_robot.registry, rlenv_robot.vector.env; print(callable(rlenv_robot.make))")
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.process
@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("kind", ["package", "module", "folder"])
def test_a_strangers_package_under_our_name_is_told(tmp_path: Path, name: str, kind: str) -> None:
    """As LinuxCNC's hal would be, from PYTHONPATH or the working directory."""
    if kind == "module":
        (tmp_path / f"{name}.py").write_text("")
    else:
        (tmp_path / name).mkdir()
        if kind == "package":
            (tmp_path / name / "__init__.py").write_text("")
    done = _python("import rlenv_robot", tmp_path)
    if kind == "folder" and done.returncode == 0:
        return  # an ordinary installation wins over a folder without __init__.py
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: rlenv_robot: {tmp_path / name}")
    assert f"shadows our package {Path(rlenv_robot.__file__).parents[1] / name}" in last
    assert "take its folder out of PYTHONPATH" in last


@pytest.mark.process
def test_a_stranger_that_is_loaded_already_is_told(tmp_path: Path) -> None:
    (tmp_path / "hal.py").write_text("")
    done = _python(f"import hal; sys.path.remove({str(tmp_path)!r}); import rlenv_robot", tmp_path)
    assert "ImportError: rlenv_robot: " in done.stderr
    assert f"{tmp_path / 'hal.py'} shadows" in done.stderr
