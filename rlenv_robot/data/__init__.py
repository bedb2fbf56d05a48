"""What is behind `rlenv_robot.source.SourceData`: options, filters, draws, batches, relabelling, figures."""
