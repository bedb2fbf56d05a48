"""Serve with LeRobot's service, streams and safe serialization; run by the interpreter that `strangers.py` makes.

The servicer is written here after LeRobot's ``policy_server.py``, whose released form takes pickles, which
``released`` does too.

Usage: serve_lerobot.py PORT MODE, where MODE is ``safe`` or ``released``.
"""

import pickle
import sys
from concurrent import futures
from queue import Queue
from threading import Event

import grpc
import torch
from lerobot.async_inference.helpers import TimedAction
from lerobot.async_inference.safe_serialization import (
    deserialize_observation,
    deserialize_policy_config,
    serialize_actions,
)
from lerobot.transport import services_pb2, services_pb2_grpc
from lerobot.transport.utils import receive_bytes_in_chunks

released = sys.argv[2] == "released"


class Servicer(services_pb2_grpc.AsyncInferenceServicer):
    def __init__(self):
        self.observations = Queue(1)

    def Ready(self, request, context):
        return services_pb2.Empty()

    def SendPolicyInstructions(self, request, context):
        config = pickle.loads(request.data) if released else deserialize_policy_config(request.data)
        self.count = config.actions_per_chunk
        assert config.policy_type == "smolvla"
        assert config.pretrained_name_or_path == "user/model"
        assert set(config.lerobot_features) == {"observation.state", "observation.images.front"}
        return services_pb2.Empty()

    def SendObservations(self, request_iterator, context):
        data = receive_bytes_in_chunks(request_iterator, None, Event())
        self.observations.put(deserialize_observation(data))
        return services_pb2.Empty()

    def GetActions(self, request, context):
        timed = self.observations.get(timeout=2)
        values = timed.get_observation()
        assert timed.must_go
        assert values["task"] == "lift the cube"
        assert values["front"].shape == (24, 32, 3)
        state = torch.tensor([values[f"{joint}.pos"] for joint in ("pan", "lift", "gripper")])
        first = timed.get_timestep()
        actions = [TimedAction(timed.get_timestamp() + n / 30, first + n, state + 1 + n) for n in range(self.count)]
        return services_pb2.Actions(data=serialize_actions(actions))


server = grpc.server(futures.ThreadPoolExecutor(4))
services_pb2_grpc.add_AsyncInferenceServicer_to_server(Servicer(), server)
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()
