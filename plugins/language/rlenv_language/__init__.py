"""Text worlds, and environments for language models: GEM, OpenEnv, agents' frameworks, chat learning."""
