"""Run the command ``rlenv-robot`` by ``python -m rlenv_robot``."""

from rlenv_robot.cli.main import main

raise SystemExit(main())
