"""Blind set C: faulty and correct environments and batches, written from the standard and the contract alone."""
