"""Counting in torch alone, on any device: the same file names and functions as in `uqeval.torch.triton`."""
