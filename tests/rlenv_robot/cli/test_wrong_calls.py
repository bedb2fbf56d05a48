"""A hundred wrong calls: each is refused with exit code 2 and one line that says what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.robots.so101 import SO101
from rlenv_robot.cli.main import main
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors

pytestmark = pytest.mark.plugin("arms", "curate", "formats", "learn", "operate", "policy_servers", "sim2real")

CALLS = """
trian so101-reach | did you mean 'train'
tran | did you mean 'train'
robot calibrat | did you mean 'calibrate'
data chek runs | did you mean 'check'
data lss | did you mean 'ls'
run so101-reech --policy p.npz | did you mean 'so101-reach'
run so101-reach --policy missing.npz | rlenv-robot train
run so101-reach | --policy
run so101-reach --policy notes.txt | .onnx
run so101-reach --policy bad.npz | rlenv-robot train
run so101-reach --policy missing.npz --episodes many | invalid int value
run so101-reach --policy p.npz --robot tcp://10.0.0.9:5555 | keys
run so101-reach --policy p.npz --robot 127.0.0.1:5555 | tcp://127.0.0.1:5555
run so101-reach --policy p.npz --robot tcp://127.0.0.1 | tcp://127.0.0.1:5555
run so101-reach --policy p.npz --robot tcp://127.0.0.1:99999 | tcp://127.0.0.1:5555
run so101-reach --policy p.npz --robot smi | 'sim'
run so101-reach --policy p.npz --stop-number x | invalid int value
run so101-reach --policy p.npz --delay -1 | at least 0
run so101-reach --policy p.npz --episodes 0 | at least 1
run so101-reach --policy p.npz --profile missing.toml | no such file
run so101-reach --policy p.npz --profile broken.toml | line 1
run so101-reach --policy p.npz --profile unknown.toml | did you mean 'robot'
run so101-reach --policy p.npz --set tolerance=0.1 | run --help
run so101-reach --policy p.npz --episods 3 | did you mean '--episodes'
run so101-reach --polcy p.npz | --policy
run so101-reach --policy p.npz --policy-server x | run --help
train so101-reech --out o.npz | did you mean 'so101-reach'
train so101-reach --method pppo --out o.npz | did you mean 'ppo'
train so101-reach --steps -5 --out o.npz | at least 1
train so101-reach --seed abc --out o.npz | invalid int value
train so101-reach --set steps=abc --out o.npz | NAME=VALUE
train so101-reach --set nonsense --out o.npz | NAME=VALUE
train so101-reach --set stepz=3 --out o.npz | --data
train so101-reach --updates 3 --out o.npz | --data
train so101-reach --out /nowhere/at/all/p.npz | make it first
train so101-reach --out p.txt | .npz
train so101-reach | --out
train --out o.npz | --data
train --method iql --out o.npz | --data
train so101-reach --method iql --out o.npz | --data
train so101-reach --data missing --method iql --out o.npz | does not exist
train so101-reach --data empty --method iql --out o.npz | looked for
train so101-reach --data empty --method evolution --out o.npz | iql
train so101-reach --data empty --steps 5 --out o.npz | --updates
train so101-reach --demos empty --method evolution --out o.npz | ppo
train so101-reach --resume missing --out o.npz | train --help
train so101-reach --profile missing.toml --out o.npz | no such file
retrain missing --policy p.npz --out o.npz | does not exist
retrain empty --policy missing.npz --out o.npz | missing.npz
retrain | --policy
retrain runs | --out
serve missing.toml | launch/
serve broken.toml | line 1
serve unknown.toml | did you mean 'robot'
serve so101 | launch/
serve so101 --port 99999 | serve --help
serve --watchdog-s -1 | watchdog
serve --watchdog-s soon | invalid
serve notes.txt | notes.txt
serve arm.xml | kind = "arm.xml"
serve arm:Arm | driver = "arm:Arm"
stop tcp://127.0.0.1:5555 now | stop --help
stop 127.0.0.1 | tcp://
stop tcp://127.0.0.1:notaport | tcp://127.0.0.1:5555
robot status nowhere | tcp://
robot show so1001 | did you mean 'so101'
robot sho so101 | did you mean 'show'
robot show so101 --urdff x | did you mean '--urdf'
data ls missing | does not exist
data ls notes.txt | a folder with a log.mcap
data ls empty missing | holds no runs
data show missing | does not exist
data show empty | looked for
data show notes.txt | notes.txt
data show | required
data replay missing | does not exist
data replay empty | looked for
data replay missing --speed fast | replay --help
data export missing o --to lerobot | does not exist
data export missing | --to
data export empty o --to lerobot | looked for
data export empty o --to lerobto | known are
data exprt runs | did you mean 'export'
dev profile missing.toml | no such file
dev profile broken.toml | line 1
dev profile unknown.toml | did you mean 'robot'
dev completion fishy | bash
dev completion | shell
dev prfile x.toml | did you mean 'profile'
completion fishy | bash
demo --steps x | demo --help
demo --seed x | invalid int value
demo so101 | demo --help
demo --sed 1 | did you mean '--seed'
demo --versio 1 | demo --help
operat view | did you mean 'operate'
policyy serve | did you mean 'policy'
sim2reel gap | did you mean 'sim2real'
runn so101-reach | did you mean 'run'
data replay runs --episode x | invalid
data ls runs --episodes | data ls --help
serve --profil x.toml | serve --help
data export empty --too o | --to
""".strip().splitlines()


def test_the_list_has_a_hundred() -> None:
    assert len(CALLS) >= 100


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("hello\n")
    Path("bad.npz").write_bytes(b"PK\x03\x04 nonsense")
    Path("broken.toml").write_text("[robot\n")
    Path("unknown.toml").write_text('[robto]\nmodel = "so101"\n')
    for name in ("empty", "runs"):
        Path(name).mkdir()
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach", SO101).save("p.npz", {})
    return tmp_path


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_is_one_line(call: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, _, word = call.partition(" | ")
    try:
        code = main(line.split())
    except SystemExit as ended:
        code = int(str(ended.code))
    told = capsys.readouterr()
    said = [text for text in told.err.splitlines() if text.startswith("rlenv-robot")]
    assert code == 2, told
    assert len(said) == 1, told.err
    assert word in said[0]
    assert "Traceback" not in told.err
