"""`uqeval`: parse, call the library, print. One file per command.

Exit codes: 0 done; 1 the answer is "no"; 2 bad usage or bad input, with one message on stderr and no traceback; 3
cannot tell; 130 interrupted; 141 whoever read the output has left.
"""

import atexit
import ctypes
import gc
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import typer
from rich.text import Text

import uqeval
from uqeval._errors import InputError, MissingExtra, UQWarning
from uqeval.cli.interrupt import CODE, interruptible, stop_if_asked
from uqeval.cli.output import in_options, stderr, use_words

_WORK = ("demo", "evaluate", "compare", "gate", "threshold", "apply", "check", "monitor", "power")
COMMANDS = (*_WORK, "reproduce", "doctor")


def _load(name: str) -> Callable[..., Any] | typer.Typer:
    """A command, or a group of them: loaded when it is called, because all of them take a third of a second."""
    match name:
        case "demo":
            from uqeval.cli.demo import demo

            return demo
        case "evaluate":
            from uqeval.cli.evaluate import evaluate

            return evaluate
        case "compare":
            from uqeval.cli.compare import compare

            return compare
        case "gate":
            from uqeval.cli.gate import gate

            return gate
        case "apply":
            from uqeval.cli.apply import apply

            return apply
        case "threshold":
            from uqeval.cli.threshold import threshold

            return threshold
        case "check":
            from uqeval.cli.check import check

            return check
        case "monitor":
            from uqeval.cli.monitor import monitor

            return monitor
        case "power":
            from uqeval.cli.power import power

            return power
        case "reproduce":
            from uqeval.cli.reproduce_human import reproduce

            return reproduce
        case _:
            from uqeval.cli.doctor import doctor

            return doctor


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        name="uqeval",
        help="Tell whether a classifier's uncertainty can be trusted, from nothing more than a test set.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    for name in names:
        command = _load(name)
        if isinstance(command, typer.Typer):
            for part in command.registered_commands:
                part.help = _paragraphs(part.callback)
            app.add_typer(command, name=name)
        else:
            app.command(name, help=_paragraphs(command))(command)
    app.callback()(_options)
    return app


def _paragraphs(command: Callable[..., Any] | None) -> str:
    """The docstring, each paragraph on one line: the help keeps the ends of lines, and a terminal has others."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(getattr(command, "__doc__", None) or ""))


def _version(show: bool) -> None:
    if show:
        typer.echo(f"uqeval {uqeval.__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and leave.", callback=_version, is_eager=True
    ),
) -> None:
    warnings.simplefilter("ignore", UQWarning)  # the tables show them


def _share_memory() -> None:
    """Threads take their memory from two heaps: with one each, a command on 16 threads held 70 MB more."""
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        set_option(-8, 2)  # M_ARENA_MAX of the GNU C library; others do without


def _collect_seldom() -> None:
    """Looks for cycles of garbage once in 50,000 new objects: loading packages makes as many, and little garbage."""
    gc.set_threshold(50_000, 20, 50)
    atexit.register(gc.freeze)  # or Python looks through all of them once more before it leaves


def main() -> None:
    """The command `uqeval`."""
    _share_memory()
    _collect_seldom()
    use_words()
    called = sys.argv[1:2]  # help and mistakes speak of all commands
    if called and called[0] not in COMMANDS and os.path.isfile(called[0]):
        import shlex  # few need it

        _say(f"{called[0]} is a file, and a command comes first. Try: uqeval evaluate {shlex.quote(called[0])}")
        sys.exit(2)
    try:
        with interruptible():
            code = _run(called if called and called[0] in COMMANDS else COMMANDS)
            stop_if_asked()
            if sys.stdout is not None:  # closed from the start: `uqeval … >&-`
                sys.stdout.flush()
    except KeyboardInterrupt:
        code = CODE
    except BrokenPipeError:
        code = _LEFT
    except OSError:  # stdout and stderr are full
        code = 2
    _forget_output()
    sys.exit(code)


_LEFT = 141  # as a program that SIGPIPE ends: never 1, which is an answer


def _run(commands: Iterable[str]) -> int:
    """The exit code, after one message where something went wrong."""
    try:
        make_app(commands)()
    except SystemExit as stop:
        return _code(stop)
    except (InputError, MissingExtra) as error:
        _say(in_options(str(error)))
        return 2
    except BrokenPipeError:  # `uqeval … | head`
        return _LEFT
    except OSError as error:  # a full disk, say
        stderr().print(Text.assemble(("Error:", "bold red"), " ", f"cannot write the output ({error.strerror})."))
        return 2
    except MemoryError:
        stderr().print("[bold red]Error:[/] the data do not fit into memory.", highlight=False)
        return 2
    return 0


def _say(message: str) -> None:
    stderr().print(Text.assemble(("Error:", "bold red"), " ", message), soft_wrap=True)


def _code(stop: SystemExit) -> int:
    """The exit code; what parses the command line makes 1 of a closed pipe."""
    cause: BaseException | None = stop
    while stop.code == 1 and cause is not None:
        if isinstance(cause, BrokenPipeError):
            return _LEFT
        cause = cause.__context__
    return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _forget_output() -> None:
    """What is left in the buffers and cannot be written must not raise once more, or Python leaves with 120."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, BrokenPipeError):
            stream.flush()
            continue
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
