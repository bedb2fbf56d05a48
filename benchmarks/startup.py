"""Start-up time of the package, the command's help and a simulated environment beside ``import numpy``.

The candidates take turns, each in a fresh process, and the figure is the median of the ratios to the NumPy run of the
same turn, so that a busy machine spoils all of them alike.

    python benchmarks/startup.py [--runs 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "import numpy": ["-c", "import numpy"],
    "import rlenv_robot": ["-c", "import rlenv_robot"],
    "rlenv-robot --help": ["-m", "rlenv_robot", "--help"],
    "rlenv-robot data --help": ["-m", "rlenv_robot", "data", "--help"],
    "rlenv-robot run --help": ["-m", "rlenv_robot", "run", "--help"],
    "rlenv-robot data check --help": ["-m", "rlenv_robot", "data", "check", "--help"],
    "make('go')": ["-c", "import rlenv_robot; rlenv_robot.make('go')"],
    "make('so101-reach')": ["-c", "import rlenv_robot; rlenv_robot.make('so101-reach')"],
}


def seconds(arguments: list[str]) -> float:
    """Return the wall time of a process."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    """Run the candidates alternately, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="of each candidate (default: 15)")
    runs = parser.parse_args().runs
    for arguments in COMMANDS.values():
        seconds(arguments)  # compiles the bytecode
    turns = [{name: seconds(arguments) for name, arguments in COMMANDS.items()} for _ in range(runs)]
    print(f"{'':24}  median, s   times import numpy")
    for name in COMMANDS:
        ratio = statistics.median(turn[name] / turn["import numpy"] for turn in turns)
        print(f"{name:24}  {statistics.median(turn[name] for turn in turns):9.3f}   {ratio:17.2f}")


if __name__ == "__main__":
    main()
