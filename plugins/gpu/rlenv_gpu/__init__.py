"""Simulate batches on a GPU (MuJoCo Warp), with sensors on the host or with everything on the device.

`rlenv_gpu.tensor_batch` needs PyTorch and must be imported explicitly.
"""

from rlenv_gpu.warp_batch import STATE, WarpBatch, WarpDevice

__all__ = ["STATE", "WarpBatch", "WarpDevice"]
