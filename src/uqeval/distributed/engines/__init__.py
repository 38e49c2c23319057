"""What moves rows: one folder for each engine, with the same file names; none knows a metric."""
