"""Declare the verbs of the curate plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["check", "cut", "label", "lineage", "merge", "plot", "recover", "timeline", "verify"]

check = Verb(
    "rlenv_curate.cli.check",
    "find gaps, frozen sensors, clipped actions, ...",
    example="runs",
    heading="check and repair",
)
cut = Verb(
    "rlenv_curate.cli.edit:add_cut",
    "copy some episodes, or a span of time, into a new run",
    heading="choose, label and copy",
)
merge = Verb(
    "rlenv_curate.cli.edit:add_merge",
    "copy several runs into one new run",
    example="morning afternoon --to merged",
    heading="choose, label and copy",
)
plot = Verb("rlenv_curate.cli.plot", "plot episodes", example="runs --out returns.png", heading="look")
timeline = Verb(
    "rlenv_curate.cli.timeline",
    "put a client's run and its controller's on one clock",
    example="runs controller-runs",
    heading="look",
)
verify = Verb(
    "rlenv_curate.cli.verify", "show that runs are as they were recorded, and sign them", heading="check and repair"
)
lineage = Verb(
    "rlenv_curate.cli.lineage",
    "name the rows that a policy saw, and the policy behind a run",
    example="policy.npz runs",
    heading="check and repair",
)
label = Verb(
    "rlenv_curate.cli.label:add_label",
    "add verdicts, tags and notes to recorded episodes",
    heading="choose, label and copy",
)
recover = Verb(
    "rlenv_curate.cli.label:add_recover",
    "repair a torn log, and report what was lost",
    example="runs",
    heading="check and repair",
)
