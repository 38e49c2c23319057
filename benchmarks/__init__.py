"""Speed and memory beside named peers, in one run: `make bench`."""
