"""Train a diffusion policy on 50 demonstrations: `python launch/train_diffusion.py --out diffusion.onnx`.

Everything except the network is as in `launch/train_act.py`. The policy (Chi et al. 2023) takes one observation, draws
the next 8 actions by removing noise in 8 steps (DDIM), and executes 4 of them. Extras: train/onnx.
"""

from functools import partial

from train_act import main
from train_act import train as train_chunks

from rlenv_learn.imitation.diffusion import DiffusionPolicy
from rlenv_learn.policies.chunks import ChunkExecution

SETTINGS = {"updates": 6000, "execution": ChunkExecution(length=8, execute=4), "network": DiffusionPolicy}
train = partial(train_chunks, **SETTINGS)

if __name__ == "__main__":
    main(__doc__, "diffusion policy", "diffusion.onnx", **SETTINGS)
