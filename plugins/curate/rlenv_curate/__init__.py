"""Check, edit and evaluate recorded data sets."""
