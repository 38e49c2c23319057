"""What `uqeval monitor` does: a folder that remembers a promise, groups, labels that come late, scores that drift."""

from uqeval.monitor.groups import e_bh
from uqeval.monitor.state import Batch, Monitor, Options, Status, opened

__all__ = ["Batch", "Monitor", "Options", "Status", "e_bh", "opened"]
