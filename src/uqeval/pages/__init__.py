"""One-file HTML pages: the report of an evaluation (`report`), and what the pages of studies share (`builder`)."""
