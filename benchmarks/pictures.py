"""Pictures of a simulated arm a second: MuJoCo's renderer as it comes, our camera, rays, and those of a batch.

All draw the SO-101 at its table in changing poses, one after the other in every round. Where there is no GPU, OpenGL
draws in software (Mesa's llvmpipe), which shares the processors with whatever else runs.

- `MuJoCo's defaults`: `mujoco.Renderer`: shadows, reflections, four samples a pixel. Needs PyOpenGL, or is left out.
- `Camera`: ours, one context; `fine` is ours with what MuJoCo's defaults have.
- `RayCamera`: without OpenGL.
- `batch of N`: N robots through `BatchRenderer`, a context a processor; `of one thread` with one.
- `steps of N with pictures`: N robots' control steps in `ImageBatch`, each with its picture.

    python benchmarks/pictures.py [--rounds 7] [--camera overhead]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

chosen = os.environ.get("MUJOCO_GL")
os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo decides when it is imported; our camera finds EGL by itself
import mujoco  # noqa: E402

if chosen is None:
    del os.environ["MUJOCO_GL"]

import numpy as np  # noqa: E402

from hal.robots.so101 import HOME  # noqa: E402
from sim.batch import SimBatch  # noqa: E402
from sim.rendering.batch import BatchRenderer, ImageBatch  # noqa: E402
from sim.rendering.camera import Camera, available  # noqa: E402
from sim.rendering.rays import RayCamera  # noqa: E402
from sim.robots.so101 import so101  # noqa: E402

SIZES = (320, 240), (640, 480)
BATCHES = 16, 64
MODEL = so101(cube=True)
RESTING = np.array(MODEL.model.key_qpos[0])


def poses(num: int) -> np.ndarray:
    """States around the arm's home, (num, nq)."""
    states = np.tile(RESTING, (num, 1))
    states[:, :6] = np.array(HOME) + np.random.default_rng(0).uniform(-0.4, 0.4, (num, 6))
    return states


def theirs(camera: str, width: int, height: int) -> Callable[[], int] | None:
    """MuJoCo's renderer with its defaults: kinematics, scene, picture."""
    try:
        renderer = mujoco.Renderer(MODEL.model, height, width)
    except (ImportError, AttributeError):
        return None
    data, states = mujoco.MjData(MODEL.model), poses(8)

    def draw() -> int:
        renderer._gl_context.make_current()  # others draw in between
        for state in states:
            data.qpos[:] = state
            mujoco.mj_kinematics(MODEL.model, data)
            mujoco.mj_comPos(MODEL.model, data)
            mujoco.mj_camlight(MODEL.model, data)
            renderer.update_scene(data, camera)
            renderer.render()
        return len(states)

    return draw


def one(eye: Camera | RayCamera, num: int) -> Callable[[], int]:
    """One camera of ours."""
    states = poses(num)

    def draw() -> int:
        for state in states:
            eye.render(state)
        return num

    return draw


def many(camera: str, width: int, height: int, num: int, threads: int) -> Callable[[], int]:
    """Pictures of a batch."""
    drawer, states = BatchRenderer(MODEL, [camera], width, height, threads), poses(num)

    def draw() -> int:
        drawer.draw(states)
        return num

    return draw


def stepped(camera: str, width: int, height: int, num: int) -> Callable[[], int]:
    """Control steps, physics and picture."""
    batch = ImageBatch(SimBatch(MODEL, num), [camera], (width, height))
    batch.reset(seeds=np.arange(num))
    command = {"joint_target": poses(num)[:, :6].astype(np.float32)}

    def step() -> int:
        batch.step(command)
        return num

    return step


def candidates(camera: str, width: int, height: int) -> dict[str, Callable[[], int]]:
    """By name, what is to be measured: a call draws so many pictures."""
    found: dict[str, Callable[[], int] | None] = {"MuJoCo's defaults": theirs(camera, width, height)}
    if available() is None:
        found["Camera, fine"] = one(Camera(MODEL, camera, width, height, fine=True), 8)
        found["Camera"] = one(Camera(MODEL, camera, width, height), 32)
        for num in BATCHES:
            found[f"batch of {num}"] = many(camera, width, height, num, 0)
        found[f"batch of {BATCHES[0]}, one thread"] = many(camera, width, height, BATCHES[0], 1)
        found[f"steps of {BATCHES[0]} with pictures"] = stepped(camera, width, height, BATCHES[0])
    found["RayCamera"] = one(RayCamera(MODEL, camera, width, height), 4)
    return {name: draw for name, draw in found.items() if draw is not None}


def rates(draws: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Pictures a second, a figure a round; the first round warms up and is not counted."""
    obs: dict[str, list[float]] = {name: [] for name in draws}
    for _ in range(rounds + 1):
        for name, draw in draws.items():
            began = time.perf_counter()
            count = draw()
            obs[name].append(count / (time.perf_counter() - began))
    return {name: values[1:] for name, values in obs.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--camera", default="overhead")
    args = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; pictures a second of camera {args.camera!r}")
    for width, height in SIZES:
        print(f"{f'{width}x{height}':28}{'median':>9}{'least':>9}{'most':>9}")
        for name, values in rates(candidates(args.camera, width, height), args.rounds).items():
            print(f"{name:28}{statistics.median(values):9.1f}{min(values):9.1f}{max(values):9.1f}")


if __name__ == "__main__":
    main()
