"""Measure the pose of a cube with markers in rendered images: errors, and the time an image takes.

    python benchmarks/tags.py [--sights 40]

A cube of 25 mm with markers of 20 mm, on the table and up to 12 cm above it, turned at random, seen by the simulated
cameras `overhead` (0.7 m away) and `view` (1.2 m). The true pose is the simulation's. Time is the processor's.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from hal.robot import Image
from rlenv_vision.tagged_cube import CUBE_TAGS, so101_tagged_cube
from rlenv_vision.tags import TagDetector
from sim.rendering.camera import Camera
from sim.rendering.projection import pinhole_camera

SIZES = ((1280, 960), (640, 480))


def turn_between(one: np.ndarray, other: np.ndarray) -> float:
    """The angle between two unit quaternions, degrees."""
    return float(np.degrees(2 * np.arccos(min(1.0, abs(float(one @ other))))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sights", type=int, default=40)
    sights = parser.parse_args().sights
    model = so101_tagged_cube()
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print("| images | cameras | measured | error, mm | at most | along x, y, z, mm | turn, ° | at most | ms each |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in SIZES:
        rng, states = np.random.default_rng(1), []
        first = int(model.model.joint("cube").qposadr[0])
        for sight in range(sights):
            qpos, angle = model.model.key_qpos[0].copy(), rng.uniform(-np.pi / 4, np.pi / 4)
            height = 0.0125 if sight % 2 else rng.uniform(0.02, 0.12)
            qpos[first : first + 3] = (rng.uniform(0.17, 0.30), rng.uniform(-0.12, 0.12), height)
            qpos[first + 3 : first + 7] = (np.cos(angle / 2), 0, 0, np.sin(angle / 2))
            states.append(qpos)
        images: dict[str, list[Image]] = {}
        for name in ("overhead", "view"):
            with Camera(model, name, *size) as eye:
                images[name] = [Image(eye.render(qpos), "rgb8", 0) for qpos in states]
        for names in (("overhead", "view"), ("overhead",), ("view",)):
            detector = TagDetector(CUBE_TAGS, {name: pinhole_camera(model, name, *size) for name in names})
            begun, poses = time.process_time(), []
            for number in range(sights):
                poses.append(detector.measure({name: images[name][number] for name in names}))
            spent = (time.process_time() - begun) / sights / len(names)
            both = [(pose, qpos) for pose, qpos in zip(poses, states, strict=True) if pose is not None]
            gaps = np.array([pose.position_m - qpos[first : first + 3] for pose, qpos in both]) * 1e3
            turns = [turn_between(pose.orientation, qpos[first + 3 : first + 7]) for pose, qpos in both]
            far = np.linalg.norm(gaps, axis=1)
            spread = ", ".join(f"{value:.2f}" for value in np.sqrt(np.square(gaps).mean(axis=0)))
            print(f"| {size[0]} x {size[1]} | {' and '.join(names)} | {len(both)} of {sights} | {np.median(far):.2f} | "
                  f"{far.max():.2f} | {spread} | {np.median(turns):.2f} | {max(turns):.2f} | {spent * 1e3:.1f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
