"""Counting in Triton on a CUDA device: the same integers as `uqeval.torch.plain`, in fewer trips through memory."""
