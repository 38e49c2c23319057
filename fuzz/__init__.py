"""Random and damaged input against independent readers and slow definitions; `tests` run a small part of it."""
