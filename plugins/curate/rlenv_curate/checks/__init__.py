"""Find problems in recorded data that impair training."""
