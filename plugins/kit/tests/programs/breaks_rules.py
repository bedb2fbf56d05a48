"""Answer as a good environment does, and break one rule of the messages in the 60th step, for the judge of programs.

It uses the standard library alone, since it is started often.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
NAME = f"digits-{os.getpid()}"
_AT = 60
_FIELD = {"shape": [], "dtype": "int32", "low": 0, "high": 9, "unit": "1", "meaning": "a number"}
_DESCRIPTION: dict[str, Any] = {
    "env_id": NAME, "calls": ["describe", "reset", "step", "close"],
    "observation": {"name": "seen", "fields": [{"name": "digit", **_FIELD}]},
    "action": {"name": "done", "fields": [{"name": "add", **_FIELD}]},
    "reward": {"name": "reward", **_FIELD},
    "reset_options": {"seed": "whole number from 0"},
}  # fmt: skip

_OTHER = {**_DESCRIPTION, "observation": {"name": "seen", "fields": [{"name": "digit", **_FIELD, "high": 10}]}}
_WEIGHT = {"name": "more", "fields": [{"name": "weight", **_FIELD}]}


def _is_digit(value: object) -> bool:
    return type(value) is int and 0 <= value <= 9


class Digits:
    """Show a digit, to which each action adds; an episode has 12 frames."""

    def __init__(self) -> None:
        self.phase, self.steps, self.frame_no, self.digit = "new", 0, 0, 0
        self.rng = random.Random()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        call = request.get("call")
        if call not in ("describe", "reset", "step", "close", *_SOURCE_CALLS):
            return {"error": {"code": "request", "message": "it is not JSON, or the call is unknown"}}
        if call == "describe":
            return _DESCRIPTION if KIND != "describes-otherwise" or not self.steps else _OTHER
        if KIND == "breaks-a-source" and call != "close":
            return {"error": {"code": "fault", "message": "the data are lost"}}
        if call == "close":
            self.phase = "closed"
            return {"closed": True}
        if call == "reset" and self.phase != "closed":
            return self.reset(request.get("options", {}))
        if call == "step" and self.phase == "running":
            self.steps += 1
            extra = request.get("extra_info", {})
            return self.step(request["action"] if KIND != "takes-more" or _is_digit(extra.get("weight")) else None)
        return {"error": {"code": "state", "message": f"it is {self.phase}"}}

    def reset(self, options: Any) -> dict[str, Any]:
        """Begin an episode."""
        seed = options.get("seed", 0) if isinstance(options, dict) else -1
        if seed == -1 or options.keys() - {"seed"} or type(seed) is not int or seed < 0:
            return {"error": {"code": "option", "message": "allowed is seed, a whole number from 0"}}
        if options:
            self.rng = random.Random(seed)
        self.phase, self.frame_no, self.digit = "running", 0, self.rng.randrange(10)
        return {"observation": self.table()}

    def step(self, action: Any) -> dict[str, Any]:
        """Add to the digit, or refuse."""
        legal = isinstance(action, dict) and action.keys() == {"env_id", "frame_no", "action"}
        values = action["action"] if legal else None
        legal = legal and action["env_id"] == NAME and type(action["frame_no"]) is int
        legal = legal and action["frame_no"] == self.frame_no and isinstance(values, dict) and values.keys() == {"add"}
        if not legal or not _is_digit(values["add"]):
            table = self.table()
            table["extra_info"] = {**table.get("extra_info", {}), "error": "it is illegal"}
            return {"observation": table, "reward": self.reward(0)}
        self.digit, self.frame_no = (self.digit + values["add"]) % 10, self.frame_no + 1
        self.phase = "ended" if self.frame_no == 12 else "running"
        return {"observation": self.table(), "reward": self.reward(self.digit)}

    def table(self) -> dict[str, Any]:
        """Return Table 1."""
        ended = int(self.phase == "ended")
        own = {"own": [None if self.frame_no == 7 else self.digit]}
        return {"env_id": NAME, "frame_no": self.frame_no, "observation": {"digit": self.digit},
                **({"extra_info": {"agents": {"all": own}}} if KIND == "own-null" else {}),
                "terminated": 0, "truncated": ended}  # fmt: skip

    def reward(self, value: int) -> dict[str, Any]:
        """Return Table 3."""
        return {"env_id": NAME, "frame_no": self.frame_no, "reward": value}


def break_rule(answer: dict[str, Any], line: str) -> str:
    """Return the line to write in the 60th step."""
    if KIND == "malformed":
        return line[:-1]
    if KIND == "nan":
        return line.replace('"reward": ' + str(answer["reward"]["reward"]), '"reward": NaN')
    if KIND == "wrong-id":
        return json.dumps({**answer, "id": answer["id"] + 1000})
    if KIND == "no-id":
        return json.dumps({key: value for key, value in answer.items() if key != "id"})
    if KIND == "more-keys":
        return json.dumps({**answer, "debug": 1})
    if KIND == "prints-before":
        print("the arm is at 3", flush=True)
    if KIND == "prints-after":
        return f"{line}\nthe arm is at 3"
    if KIND == "hangs":
        time.sleep(3600)
    if KIND == "exits":
        os._exit(3)
    if KIND == "exits-quietly":
        os._exit(0)
    if KIND == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if KIND == "closes-output":
        os.close(1)
        time.sleep(3600)
    if KIND == "closes-input":
        os.close(0)
    if KIND == "odd-error":
        return json.dumps({"id": answer["id"], "error": "it broke"})
    return line


def main() -> None:
    """Answer until the input ends."""
    digits = Digits()
    if KIND == "greets":
        print("digits, version 1", flush=True)
    if KIND == "no-description":
        del _DESCRIPTION["observation"]
    if KIND == "no-close":
        _DESCRIPTION["calls"] = ["describe", "reset", "step"]
    if KIND == "takes-more":
        _DESCRIPTION["step_extra"] = _WEIGHT
    if KIND == "breaks-a-source":
        _DESCRIPTION["calls"] = ["describe", "sample_steps", "sample_trajectories", "close"]
    if KIND == "hides":
        _DESCRIPTION["mode"] = "inference"
    if KIND == "moves":
        _DESCRIPTION["simulated"] = False
    if KIND == "leaves-a-child":
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if KIND == "is-deaf":
        time.sleep(3600)
    print(f"digits: {KIND or 'good'}", file=sys.stderr)
    while text := _line():
        request = _request(text)
        answer = {"id": request.get("id"), **digits.answer(request)}
        line = json.dumps(answer)
        if digits.steps == _AT and request.get("call") == "step" and "reward" in answer:
            line = break_rule(answer, line)
        if KIND == "ends-with-close" and request.get("call") == "close":
            print(line, flush=True)
            return
        print(line, flush=True)
    if KIND == "stays":
        time.sleep(3600)
    if KIND in ("fails-at-the-end", "breaks-a-source"):
        sys.exit(4)


_SOURCE_CALLS = ("init", "sample_steps", "sample_trajectories", "get_all_actions", "statistics")


def _request(text: bytes) -> dict[str, Any]:
    """Return a request, in which a number without a fraction is whole; empty if the text is no JSON."""
    try:
        return json.loads(
            text, parse_float=lambda number: int(float(number)) if float(number) % 1 == 0 else float(number)
        )
    except ValueError:
        return {}


def _line() -> bytes:
    """Read a line without a buffer, so that a closed input is closed."""
    line = b""
    while not line.endswith(b"\n"):
        byte = b""
        try:
            byte = os.read(0, 1)
        except OSError:
            time.sleep(3600)
        if not byte:
            return b""
        line += byte
    return line


main()
