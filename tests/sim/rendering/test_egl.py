"""The order in which shared libraries are loaded decides whether PyTorch survives software rendering."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hal import RobotError
from sim.rendering import egl
from sim.rendering.camera import available, renderer_name

RENDER_THEN_OPTIMISE = """
from sim.rendering.camera import Camera
from sim.robots.so101 import so101
model = so101()
with Camera(model, "view", 32, 24) as camera:
    camera.render(model.model.qpos0)
import torch
torch.optim.Adam([torch.nn.Parameter(torch.zeros(3))])
import triton._C.libtriton
print("alive")
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(available() is not None, reason=f"{available()}")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed (extra torch)")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed (PyTorch without CUDA)")
def test_an_optimizer_can_be_made_after_rendering() -> None:
    process = subprocess.run([sys.executable, "-c", RENDER_THEN_OPTIMISE], capture_output=True, text=True, timeout=300)
    assert (process.returncode, process.stdout.strip()) == (0, "alive"), process.stderr[-2000:]


def test_triton_is_loaded_before_opengl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "triton" / "_C" / "libtriton.cpython-311.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "triton" / "__init__.py").write_text("raise AssertionError('Triton must not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded: list[str] = []

    def load(name: str) -> ctypes.CDLL:
        loaded.append(name)
        raise OSError("not loaded in this test")

    monkeypatch.setattr(ctypes, "CDLL", load)
    egl.load_triton_first.cache_clear()
    with pytest.raises(RobotError):
        egl.EglContext()
    egl.load_triton_first.cache_clear()
    assert loaded == [str(library), "libEGL.so.1"]


MESAS_THREADS = """
from pathlib import Path
from sim.rendering.camera import Camera
from sim.robots.so101 import so101
model = so101()
with Camera(model, "view", 32, 24) as camera:
    camera.render(model.model.qpos0)
    names = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
print(sum(name.startswith("llvmpipe") for name in names))
"""


@pytest.mark.process
@pytest.mark.skipif(available() is not None or "llvmpipe" not in renderer_name(), reason="Mesa does not draw here")
@pytest.mark.parametrize("chosen", ["", "2"])
def test_mesa_draws_without_threads_of_its_own(chosen: str) -> None:
    """Its threads, which the system counts by their names, crash with many contexts; a user may still want them."""
    environment = {name: value for name, value in os.environ.items() if name != "LP_NUM_THREADS"}
    environment |= {"LP_NUM_THREADS": chosen} if chosen else {}
    command = [sys.executable, "-c", MESAS_THREADS]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert process.stdout.strip() == (chosen or "0"), process.stderr[-2000:]
    assert os.environ.get("LP_NUM_THREADS") != "0"
