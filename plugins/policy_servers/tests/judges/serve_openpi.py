"""Serve a policy by openpi's own ``WebsocketPolicyServer``; run by the interpreter that `strangers.py` makes.

Usage: serve_openpi.py PORT MODE, where MODE is ``ramp``, ``raise``, ``nan``, ``shape``, ``objects`` or ``slow``.
"""

import sys
import time

import numpy as np
from websocket_policy_server import WebsocketPolicyServer

port, mode = int(sys.argv[1]), sys.argv[2]


class Policy:
    def infer(self, request):
        if mode == "raise":
            raise KeyError("observation/\x1b[31mstate")
        if mode == "slow":
            time.sleep(1.0)
        assert request["observation/image"].shape == (224, 224, 3), request["observation/image"].shape
        assert request["observation/image"].dtype == np.uint8
        assert request["prompt"] == "lift the cube"
        state = request["observation/state"].astype(np.float64)
        actions = state[None] + np.arange(1, 11)[:, None]  # degrees
        if mode == "nan":
            actions[4, 1] = np.nan
        if mode == "shape":
            actions = actions[:, :2]
        return {"actions": actions}

    def reset(self):
        pass


WebsocketPolicyServer(Policy(), "127.0.0.1", port, {"robot": "judge"}).serve_forever()
