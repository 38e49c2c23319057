"""Out-of-distribution inputs: the paper's appendix on them, where what is foreign is known exactly."""
