"""Models that are run or trained here."""
