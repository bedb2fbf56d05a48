"""The command line: a module for each verb, or for verbs that share their helpers."""
