"""Planted faults of robots and of source data, and correct unusual ones, written without a look at the kit."""
