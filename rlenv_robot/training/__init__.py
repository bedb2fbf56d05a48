"""Train, retrain and evaluate policies."""
