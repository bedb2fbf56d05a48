"""Step batches of simulations on a GPU with MuJoCo Warp."""
