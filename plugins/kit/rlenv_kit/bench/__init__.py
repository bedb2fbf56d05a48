"""Try an arm on a bench, step by step with its owner, and write the figures as a signed report."""
