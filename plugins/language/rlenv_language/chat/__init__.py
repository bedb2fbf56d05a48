"""Train language models on environments in language: transcripts, tokens, advantages, a small learner."""
