"""One pass, nothing kept: bounds that are certain for the rows seen."""
