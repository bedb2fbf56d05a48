"""Planted faults of environments and batches, and correct subjects, by an author who has not read the kit."""
