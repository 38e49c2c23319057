"""`uqeval`: parse, call the library, print. One file per command.

Exit codes: 0 done; 1 the answer is "no"; 2 bad usage or bad input, with one message on stderr and no traceback.
"""

import io
import re
import sys
import warnings

import typer
from rich.text import Text

import uqeval
from uqeval._errors import InputError, MissingExtra, UQWarning
from uqeval.cli.check import check
from uqeval.cli.compare import compare
from uqeval.cli.demo import demo
from uqeval.cli.doctor import doctor
from uqeval.cli.evaluate import evaluate
from uqeval.cli.output import stderr
from uqeval.cli.power import power
from uqeval.cli.reproduce_human import reproduce
from uqeval.cli.threshold import threshold

app = typer.Typer(
    name="uqeval",
    help="Tell whether a classifier's uncertainty can be trusted, from nothing more than a test set.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(evaluate)
app.command()(compare)
app.command()(threshold)
app.command()(check)
app.command()(power)
app.add_typer(reproduce, name="reproduce")
app.command()(doctor)

# The same words as options, where a message speaks of arguments.
_AS_OPTION = {
    "normalize=True": "--normalize",
    "largest_cluster=": "--largest-cluster ",
    "memory_limit": "--memory",
    "spill=": "--spill",
    "client=": "--scheduler",
}
_CHOICE = re.compile(r'\b(engine|risk|cluster_method|method)="([\w-]+)"')


def _version(show: bool) -> None:
    if show:
        typer.echo(f"uqeval {uqeval.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and leave.", callback=_version, is_eager=True
    ),
) -> None:
    warnings.simplefilter("ignore", UQWarning)  # the tables show them


def main() -> None:
    """The command `uqeval`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a console without "↑" shows "?"
    try:
        app()
    except (InputError, MissingExtra) as error:
        message = _CHOICE.sub(lambda said: f"--{said[1].replace('_', '-')} {said[2]}", str(error))
        for argument, option in _AS_OPTION.items():
            message = message.replace(argument, option)
        stderr().print(Text.assemble(("Error:", "bold red"), " ", message), soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # `uqeval … | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a full disk, say
        stderr().print(Text.assemble(("Error:", "bold red"), " ", f"cannot write the output ({error.strerror})."))
        sys.exit(2)
    except MemoryError:
        stderr().print("[bold red]Error:[/] the data do not fit into memory.", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
