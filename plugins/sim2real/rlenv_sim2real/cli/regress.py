"""``rlenv-robot sim2real regress``: write a test that a simulation stays as close to a recorded run as it is now."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    from rlenv_sim2real.cli.arm_log import add_log, add_replay

    parser.description = (
        "Replay the recorded goals of an arm through a simulation, and write a pytest module that replays them again "
        "and fails once a joint's offset, lag or error has left the bounds around what it is now. Run it after each "
        "change of the model, the driver or the arm; a change of 2 degrees or of 20 ms fails."
    )
    parser.epilog = """
Examples:

  rlenv-robot sim2real regress runs/2026-11-21_03-24-37 --model arm.toml
  pytest test_2026_11_21_03_24_37.py

The module reads the run at its present place, relative to the module.
"""
    add_log(parser)
    add_replay(parser)
    parser.add_argument("--offset", type=float, metavar="DEG", help="largest change of an offset (default: 1)")
    parser.add_argument("--lag", type=float, metavar="MS", help="largest change of a lag (default: 10)")
    parser.add_argument("--rms", type=float, metavar="DEG", help="largest growth of an error (default: 1)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the module (default: test_NAME.py, from the run)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure the gap, and write the test module unless the file exists."""
    from rlenv_robot.cli.output import counted
    from rlenv_sim2real.cli.arm_log import chosen_episodes, frames_of, open_log, recorded_robot_model
    from rlenv_sim2real.regression import Bounds, Replayed, measure, module_text

    table = open_log(args.log, args)
    stem = "".join(letter if letter.isalnum() else "_" for letter in args.log.resolve().stem)
    out = args.out or Path(f"test_{stem}.py")
    if out.suffix != ".py":
        raise ValueError(f"--out is {str(out)!r}, but a test module ends in .py")

    def relative(path: str | Path) -> str:
        return os.path.relpath(path, out.resolve().parent)

    model = relative(args.model) if args.model.endswith((".toml", ".xml")) else args.model
    replayed = Replayed(
        relative(args.log), model, args.robot or recorded_robot_model(table, args).name, args.units,
        None if args.calibration is None else relative(args.calibration), args.contacts,
        chosen_episodes(args.episode, table), frames_of(args.frames) or None,
    )  # fmt: skip
    given = {"offset_deg": args.offset, "lag_ms": args.lag, "rms_deg": args.rms}
    bounds = Bounds(**{name: value for name, value in given.items() if value is not None})
    figures = measure(replayed, out.resolve().parent)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(module_text(replayed, figures, bounds))
    except FileExistsError:
        raise ValueError(f"{out} exists; remove it, or name another module with --out") from None
    print(f"{out}: {counted(len(figures), 'episode')}; run pytest {out}")
    return 0
