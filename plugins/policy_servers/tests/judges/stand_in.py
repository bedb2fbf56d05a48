"""Stand in for a vision-language-action model behind openpi's own server file. It is no VLA and has no weights.

It reads the colour in the prompt, finds the patch of that colour in the image, converts its pixel to a place on the
table by a fitted homography, and answers a chunk of joint angles that lead the gripper's tip over that place. While it
does not see the colour it turns the arm aside, which may hide it.

Usage: stand_in.py PORT CALIBRATION.json [SECONDS per inference]
"""

import json
import sys
import time

import numpy as np

CHUNK, STRIDE_RAD = 25, 0.04
TESTS = {
    "red": lambda r, g, b: (r > 90) & (g < 0.5 * r) & (b < 0.5 * r),
    "green": lambda r, g, b: (g > 50) & (r < 0.7 * g) & (b < 0.75 * g),
    "blue": lambda r, g, b: (b > 70) & (r < 0.6 * b) & (g < 0.75 * b),
}


def find(image, colour):
    """Return the middle of the pixels of a colour, (column, row), or None for fewer than 4."""
    rows, columns = np.nonzero(TESTS[colour](*np.moveaxis(image.astype(float), -1, 0)))
    return None if len(rows) < 4 else np.array([np.median(columns), np.median(rows)])


def fitted(pixels, places):
    """Return the homography from pixels (n, 2) to places on the table (n, 2), by least squares."""
    rows, right = [], []
    for (u, v), (x, y) in zip(pixels, places, strict=True):
        rows += [[u, v, 1, 0, 0, 0, -u * x, -v * x], [0, 0, 0, u, v, 1, -u * y, -v * y]]
        right += [x, y]
    return np.append(np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)[0], 1.0).reshape(3, 3)


def place(homography, pixel):
    x, y, w = homography @ np.append(pixel, 1.0)
    return np.array([x, y]) / w


class StandIn:
    def __init__(self, homography, height_m, inference_s=0.0):
        self.homography, self.height_m, self.inference_s = homography, height_m, inference_s
        self.seen = {}

    def infer(self, request):
        from hal.robots.so101 import SIDEWAYS, inverse_kinematics, steepest

        time.sleep(self.inference_s)
        colour = next(name for name in TESTS if name in request["prompt"])
        pixel = find(request["observation/image"], colour)
        if pixel is not None:
            self.seen[colour] = place(self.homography, pixel)
        state = np.append(np.radians(request["observation/state"][:5]), request["observation/state"][5])
        if colour in self.seen:
            point = np.append(self.seen[colour], self.height_m)
            goal = inverse_kinematics(point, steepest(point, SIDEWAYS), SIDEWAYS)
        else:
            goal = np.array([0.9 if state[0] < 0.3 else -0.9, -0.5, 0.5, 0.6, SIDEWAYS])
        if np.isnan(goal).any():
            raise ValueError(f"the {colour} cube is out of reach")
        steps = np.arange(1, CHUNK + 1)[:, None] * STRIDE_RAD
        way = goal - state[:5]
        joints = state[:5] + np.sign(way) * np.minimum(np.abs(way), steps)
        return {"actions": np.concatenate([np.degrees(joints), np.full((CHUNK, 1), 50.0)], axis=1)}

    def reset(self):
        pass


if __name__ == "__main__":
    from websocket_policy_server import WebsocketPolicyServer

    with open(sys.argv[2]) as file:
        settings = json.load(file)
    inference_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    model = StandIn(np.array(settings["homography"]), settings["height_m"], inference_s)
    WebsocketPolicyServer(model, "127.0.0.1", int(sys.argv[1])).serve_forever()
