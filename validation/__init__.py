"""Does every promise hold? Intervals, tests, bands and guarantees on laws whose true values are known."""
