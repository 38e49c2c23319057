"""A Dask cluster."""
