"""The exact algorithm, for any engine: rows → tallies."""
