"""Environments, robots, batches and source data by one more author, who had not read the kit."""
