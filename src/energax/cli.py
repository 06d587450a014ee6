"""The command line: `energax compare` and `energax models`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import BadFile, BadInput, EnergaxError

if TYPE_CHECKING:
    from .data import Table

app = typer.Typer(
    name="energax",
    help="Probabilistic machine learning on JAX: every model an energy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from ._version import __version__

        typer.echo(f"energax {__version__}")
        raise typer.Exit


@app.callback()
def energax(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Probabilistic machine learning on JAX: every model an energy."""


@app.command()
def compare(
    data: Annotated[
        Path | None, typer.Argument(help="A csv, tsv, npz, npy or parquet file. Default: bundled digits.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            "-m",
            metavar="NAMES",
            help="Names separated by commas, or one option each. Default: all that suit.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="NAMES",
            help="Use only these columns: names separated by commas, or one option each. "
            "A name with a comma is given in an option of its own: -c a,b -c d.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop",
            "-d",
            metavar="NAMES",
            help="Leave these columns out, such as a label; given as for --columns.",
        ),
    ] = None,
    array: Annotated[str | None, typer.Option("--array", help="Which array of an npz file.")] = None,
    test_size: Annotated[
        float,
        typer.Option("--test-size", "-t", help="Fraction of rows held out, or, above 1, their number."),
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Determines the split and all randomness.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the table to this csv file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the table.")] = False,
) -> None:
    """Fit every model that suits the data and compare them on held-out rows."""
    from rich.console import Console

    from .caching import use_compilation_cache
    from .data import digits, read
    from .evaluate import compare as run

    _check_output(output, data)
    with _option_names():
        if data is None and array is not None:
            raise BadInput("array", repr(array), "an npz file to take it from")
        table = _select_columns(digits() if data is None else read(data, array=array), columns, drop)
    use_compilation_cache()
    with _option_names(data=table.source):
        size = int(test_size) if test_size >= 1 and test_size.is_integer() else test_size
        result = run(table, models, test=size, key=seed, progress=not quiet)
    console = Console()
    console.print(result)
    if output is not None:
        try:
            result.to_frame().to_csv(output)
        except OSError as error:
            raise BadFile(f"{output}: could not be written ({error.strerror}).") from None
        console.print(f"Written to {output}.", style="dim")
    if result.best is None:
        raise typer.Exit(1)


_OPTIONS = {"test": "--test-size", "key": "--seed"} | {
    name: f"--{name}" for name in ("models", "columns", "drop", "array")
}


@contextlib.contextmanager
def _option_names(**others: str) -> Iterator[None]:
    """Replace the arguments in errors of the library by the options of the command line."""
    try:
        yield
    except BadInput as error:
        name = (_OPTIONS | others).get(error.argument, error.argument)
        raise BadInput(name, error.found, error.expected, error.remedy) from None


def _check_output(output: Path | None, data: Path | None) -> None:
    """Raise, before any work, if the table cannot be written to `output`."""
    if output is None:
        return
    if output.suffix.lower() != ".csv":
        raise BadInput("--output", str(output), "a name that ends in .csv")
    if not output.parent.is_dir():
        raise BadInput("--output", f"no folder {output.parent}", "an existing folder")
    if output.is_dir():
        raise BadInput("--output", f"{output}, which is a folder", "the name of a file")
    if data is not None and output.exists() and data.exists() and output.samefile(data):
        raise BadInput("--output", f"{output}, which holds the data", "another name")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise BadInput("--output", f"{output}, which is not writable", "a writable place")


def _select_columns(table: Table, columns: list[str] | None, drop: list[str] | None) -> Table:
    """The table with the selected columns. A column may be dropped although it was not selected."""
    known = {*table.columns, *dict(table.dropped)}
    selected = table if columns is None else table.only(_names("columns", columns, known))
    if drop is None:
        return selected
    unwanted = _names("drop", drop, known)
    return selected.without([n for n in unwanted if n in selected.columns or n not in table.columns])


def _names(option: str, words: list[str], known: Collection[str]) -> list[str]:
    """Column names: a word that is a name as it is, other words split at their commas."""
    pieces = [[word] if word in known else word.split(",") for word in words]
    names = [n if n in known else n.strip() for piece in pieces for n in piece if n.strip()]
    if not names:
        raise BadInput(option, "no name", "at least one column")
    return names


@app.command()
def models() -> None:
    """List the models that `compare` can fit."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from .evaluate import model_specs

    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("name", "data", "missing values", "model", "estimator"):
        table.add_column(column, no_wrap=column == "name")
    for spec in model_specs():
        missing = "summed out" if spec.missing else "not supported"
        table.add_row(spec.name, spec.data, missing, spec.label, spec.estimator)
    Console().print(table)


def main() -> None:
    """Run the command line. A wrong call prints one line and exits with code 2, without a traceback."""
    for stream in (sys.stdout, sys.stderr):  # terminals without Unicode print a replacement character
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app()
    except EnergaxError as error:
        print(f"energax: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("energax: stopped.", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
