"""The command line: one module per verb, or per group of verbs with shared helpers."""
