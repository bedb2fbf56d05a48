"""Train policies by PPO, imitation, online and offline reinforcement learning."""
