"""Listen with the vendor's SDK, and judge commands and states by its own checksum; runs in its interpreter.

    python vendor_listener.py DOMAIN SECONDS

Prints a line when it listens, and at the end JSON: commands and states received, those with right checksums, and the
newest state's charge and fourth joint angle.
"""

import json
import sys
import time

from unitree_sdk2py.core.channel import ChannelFactoryInitialize, ChannelSubscriber
from unitree_sdk2py.idl.unitree_go.msg.dds_ import LowCmd_, LowState_
from unitree_sdk2py.utils.crc import CRC

ChannelFactoryInitialize(int(sys.argv[1]), "lo")
commands, states, crc = [], [], CRC()
readers = [ChannelSubscriber("rt/lowcmd", LowCmd_), ChannelSubscriber("rt/lowstate", LowState_)]
readers[0].Init(commands.append, 100)
readers[1].Init(states.append, 100)
print("listening", flush=True)
time.sleep(float(sys.argv[2]))
commands, states = list(commands), list(states)
print(
    json.dumps(
        {
            "commands": len(commands),
            "right_commands": sum(crc.Crc(message) == message.crc for message in commands),
            "angles": [message.motor_cmd[0].q for message in commands],
            "states": len(states),
            "right_states": sum(crc.Crc(message) == message.crc for message in states),
            "charge": states[-1].bms_state.soc if states else None,
            "angle": states[-1].motor_state[3].q if states else None,
        }
    )
)
