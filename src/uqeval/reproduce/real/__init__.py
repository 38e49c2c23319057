"""The studies on human labels: predictions on disk, one model judged at a time, tables, figures and page."""
