"""``python -m rlenv_robot``."""

from rlenv_robot.cli import main

raise SystemExit(main())
