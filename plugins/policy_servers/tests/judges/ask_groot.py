"""Ask a server by GR00T's own ``PolicyClient``; run by the interpreter that `strangers.py` makes.

Usage: ask_groot.py PORT OBSERVATIONS.npz PROMPT REQUESTS TOKEN
"""

import json
import sys

import numpy as np
from gr00t.policy.server_client import PolicyClient

port, path, prompt, requests, token = sys.argv[1:]
client = PolicyClient("127.0.0.1", int(port), api_token=token or None)
assert client.ping()
configs = client.get_modality_config()
modalities = {kind: [config.delta_indices, config.modality_keys] for kind, config in configs.items()}
arrays = dict(np.load(path))
observation = {
    "video": {key[6:]: array[None, None] for key, array in arrays.items() if key.startswith("video.")},
    "state": {key[6:]: array[None, None] for key, array in arrays.items() if key.startswith("state.")},
    "language": {"task": [[prompt]]},
}
answers = []
client.reset()
for _ in range(int(requests)):
    action, info = client.get_action(observation)
    answers.append({key: array.tolist() for key, array in action.items()})
try:
    client.kill_server()
except RuntimeError as error:
    refusal = str(error)
assert client.ping()
print(json.dumps({"modalities": modalities, "answers": answers, "kill": refusal}))
