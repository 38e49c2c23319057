"""Files and queries of this machine."""
