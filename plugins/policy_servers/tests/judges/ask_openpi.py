"""Ask a server by the stock client of openpi-client; run by the interpreter that `strangers.py` makes.

Usage: ask_openpi.py PORT OBSERVATIONS.npz PROMPT REQUESTS [HORIZON] [TOKEN]
"""

import json
import sys

import numpy as np
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy

port, path, prompt, requests, horizon, token = (*sys.argv[1:], *("0", "")[len(sys.argv) - 5 :])
client = WebsocketClientPolicy("127.0.0.1", int(port), token or None)
policy = ActionChunkBroker(client, int(horizon)) if int(horizon) else client
observation = {**np.load(path), "prompt": prompt}
answers = []
for _ in range(int(requests)):
    answer = policy.infer(observation)
    answers.append(answer["actions"].tolist())
    assert answer["server_timing"]["infer_ms"] >= 0
print(json.dumps({"metadata": client.get_server_metadata(), "answers": answers}))
