"""The first that runs of the command: Ctrl-C ends it at once while the rest is loading and nothing is open yet."""

import os
import signal


def main() -> None:
    """The command `uqeval`."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        from uqeval.cli.main import main as run  # 0.3 s, in which Ctrl-C would print a traceback

        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done; Python takes its time to leave
