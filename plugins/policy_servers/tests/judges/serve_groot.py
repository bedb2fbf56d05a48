"""Serve a policy by GR00T's own ``PolicyServer``; run by the interpreter that `strangers.py` makes.

Usage: serve_groot.py PORT TOKEN
"""

import sys

import numpy as np
from gr00t.data.types import ModalityConfig
from gr00t.policy.policy import BasePolicy
from gr00t.policy.server_client import PolicyServer


class Policy(BasePolicy):
    def check_observation(self, observation):
        assert observation["video"]["ego"].shape == (1, 1, 48, 64, 3), observation["video"]["ego"].shape
        assert observation["video"]["ego"].dtype == np.uint8
        assert observation["state"]["arm"].shape == (1, 1, 2)
        assert observation["state"]["arm"].dtype == np.float32
        assert observation["language"]["task"] == [["lift the cube"]]

    def check_action(self, action):
        pass

    def _get_action(self, observation, options=None):
        steps = 0.01 * np.arange(1, 9)[None, :, None]
        state = observation["state"]
        return {"arm": (state["arm"] + steps).astype(np.float32), "hand": np.repeat(state["hand"], 8, 1)}, {}

    def reset(self, options=None):
        return {}

    def get_modality_config(self):
        return {
            "video": ModalityConfig([0], ["ego"]),
            "state": ModalityConfig([0], ["arm", "hand"]),
            "action": ModalityConfig(list(range(8)), ["arm", "hand"]),
            "language": ModalityConfig([0], ["task"]),
        }


PolicyServer(Policy(), "127.0.0.1", int(sys.argv[1]), sys.argv[2] or None).run()
