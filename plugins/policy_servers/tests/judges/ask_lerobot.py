"""Ask a server with LeRobot's stubs, streams and safe serialization; run by the interpreter that `strangers.py` makes.

The client itself is written here after LeRobot's ``robot_client.py``: its released client sends pickles.

Usage: ask_lerobot.py PORT OBSERVATIONS.npz PROMPT REQUESTS
"""

import json
import sys

import grpc
import numpy as np
from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation
from lerobot.async_inference.safe_serialization import (
    deserialize_actions,
    serialize_observation,
    serialize_policy_config,
)
from lerobot.transport import services_pb2, services_pb2_grpc
from lerobot.transport.utils import send_bytes_in_chunks

port, path, prompt, requests = sys.argv[1:]
stub = services_pb2_grpc.AsyncInferenceStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
stub.Ready(services_pb2.Empty())
config = RemotePolicyConfig("act", "user/model", {}, 4)
stub.SendPolicyInstructions(services_pb2.PolicySetup(data=serialize_policy_config(config)))
observation = {**np.load(path), "task": prompt}
answers = []
for step in range(int(requests)):
    data = serialize_observation(TimedObservation(100.0, 10 * step, observation, True))
    stub.SendObservations(send_bytes_in_chunks(data, services_pb2.Observation))
    actions = deserialize_actions(stub.GetActions(services_pb2.Empty()).data)
    assert [action.get_timestep() for action in actions] == list(range(10 * step, 10 * step + len(actions)))
    answers.append([action.get_action().tolist() for action in actions])
try:
    stub.SendPolicyInstructions(services_pb2.PolicySetup(data=b"\x80\x04\x95"))
except grpc.RpcError as error:
    refusal = error.details()
print(json.dumps({"answers": answers, "pickle": refusal}))
