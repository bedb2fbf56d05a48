"""Train language models on environments in language: transcripts, tokens, advantages, and a small learner."""
