"""Meet a bridge with Cyclone DDS's own types and encoding: `dds_stranger.py DOMAIN GOAL...`."""

import json
import sys
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import final
from cyclonedds.idl.types import float64, int32, int64, sequence, uint8, uint32, uint64
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

LOOPBACK = """<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>
</General><Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>
<Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>"""


@dataclass
@final
class Time(IdlStruct, typename="builtin_interfaces.msg.dds_.Time_"):
    sec: int32
    nanosec: uint32


@dataclass
@final
class Duration(IdlStruct, typename="builtin_interfaces.msg.dds_.Duration_"):
    sec: int32
    nanosec: uint32


@dataclass
@final
class Header(IdlStruct, typename="std_msgs.msg.dds_.Header_"):
    stamp: Time
    frame_id: str


@dataclass
@final
class JointState(IdlStruct, typename="sensor_msgs.msg.dds_.JointState_"):
    header: Header
    name: sequence[str]
    position: sequence[float64]
    velocity: sequence[float64]
    effort: sequence[float64]


@dataclass
@final
class Point(IdlStruct, typename="trajectory_msgs.msg.dds_.JointTrajectoryPoint_"):
    positions: sequence[float64]
    velocities: sequence[float64]
    accelerations: sequence[float64]
    effort: sequence[float64]
    time_from_start: Duration


@dataclass
@final
class Trajectory(IdlStruct, typename="trajectory_msgs.msg.dds_.JointTrajectory_"):
    header: Header
    joint_names: sequence[str]
    points: sequence[Point]


@dataclass
@final
class Request(IdlStruct, typename="std_srvs.srv.dds_.Trigger_Request_"):
    client_guid: uint64
    sequence_number: int64
    structure_needs_at_least_one_member: uint8


@dataclass
@final
class Response(IdlStruct, typename="std_srvs.srv.dds_.Trigger_Response_"):
    client_guid: uint64
    sequence_number: int64
    success: bool
    message: str


def main() -> None:
    number, goal = int(sys.argv[1]), [float(word) for word in sys.argv[2:]]
    domain = Domain(number, LOOPBACK)
    part = DomainParticipant(number)
    qos = Qos(
        Policy.Reliability.Reliable(duration(seconds=1)), Policy.Durability.Volatile, Policy.History.KeepLast(10),
        Policy.DataRepresentation(use_cdrv0_representation=True),
    )  # fmt: skip
    states = DataReader(part, Topic(part, "rt/joint_states", JointState), qos=qos)
    path = "rt/joint_trajectory_controller/joint_trajectory"
    sender = DataWriter(part, Topic(part, path, Trajectory), qos=qos)
    said: dict[str, object] = {}

    def newest(condition, seconds=20.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for sample in states.take(50):
                if isinstance(sample, JointState) and condition(sample):
                    return sample
            time.sleep(0.01)
        return None

    def call(name: str) -> dict:
        asking = DataWriter(part, Topic(part, f"rq{name}Request", Request), qos=qos)
        answers = DataReader(part, Topic(part, f"rr{name}Reply", Response), qos=qos)
        time.sleep(1.0)
        asking.write(Request(0x1122334455667788, 5, 0))
        end = time.monotonic() + 20.0
        while time.monotonic() < end:
            for answer in answers.take(5):
                mine = (answer.client_guid, answer.sequence_number) == (0x1122334455667788, 5)
                return {"success": answer.success, "message": answer.message, "mine": mine}
            time.sleep(0.02)
        return {}

    said["reset"] = call("/rlenv_robot/reset")
    first = newest(lambda state: True)
    said["joints"] = list(first.name)
    points = [Point(goal, [], [], [], Duration(1, 500_000_000))]
    sender.write(Trajectory(Header(Time(0, 0), ""), list(first.name), points))
    last = newest(lambda state: max(abs(a - b) for a, b in zip(state.position, goal, strict=True)) < 0.05)
    said["arrived"] = last is not None
    said["stop"] = call("/rlenv_robot/stop")
    print(json.dumps(said))
    sys.stdout.flush()
    del domain


main()
