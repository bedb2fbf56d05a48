"""Parts of `rlenv_robot.source.SourceData`: options, filters, sampling, batches, relabelling, statistics."""
