"""Planted faults of batches and of source data, and correct unusual ones, written from the documents alone."""
