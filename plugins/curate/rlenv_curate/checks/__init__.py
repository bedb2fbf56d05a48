"""Find what spoils recorded data for training."""
