"""A Spark session."""
