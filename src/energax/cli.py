"""The command line: `energax compare` and what belongs to it."""

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
            help="Names, by commas or one option each. Default: all that suit.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="NAMES",
            help="Use these columns only: names by commas, or one option each. "
            "A name with a comma in it is given alone: -c a,b -c d.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop",
            "-d",
            metavar="NAMES",
            help="Leave these columns out (a label, say); given as for --columns.",
        ),
    ] = None,
    array: Annotated[str | None, typer.Option("--array", help="Which array of an npz file.")] = None,
    test_size: Annotated[
        float, typer.Option("--test-size", "-t", help="Fraction of rows held out; above 1, how many.")
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Decides the split and all randomness.")] = 0,
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
    with _as_typed():
        if data is None and array is not None:
            raise BadInput("array", repr(array), "an npz file to take it from")
        if not 0 <= seed < 2**32:
            raise BadInput("key", str(seed), f"a whole number from 0 to {2**32 - 1}")
        size = _rows(test_size)
        table = _narrowed(digits() if data is None else read(data, array=array), columns, drop)
    use_compilation_cache()
    with _as_typed(data=table.source):
        wanted = None if models is None else ",".join(models)
        result = run(table, wanted, test=size, key=seed, progress=not quiet)
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
def _as_typed(**others: str) -> Iterator[None]:
    """Refusals of the library's arguments, under the names that were typed."""
    try:
        yield
    except BadInput as error:
        name = (_OPTIONS | others).get(error.argument, error.argument)
        raise BadInput(name, error.found, error.expected, error.remedy) from None


def _check_output(output: Path | None, data: Path | None) -> None:
    """Before any work: whether the table can be written there, and over what."""
    if output is None:
        return
    if output.suffix.lower() != ".csv":
        raise BadInput("--output", str(output), "a name that ends in .csv")
    if not output.parent.is_dir():
        raise BadInput("--output", f"no folder {output.parent}", "a folder that exists")
    if output.is_dir():
        raise BadInput("--output", f"{output}, which is a folder", "the name of a file")
    if data is not None and output.exists() and data.exists() and output.samefile(data):
        raise BadInput("--output", f"{output}, which holds the data", "another name")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise BadInput("--output", f"{output}, which you may not write", "a place where you may")


def _rows(test_size: float) -> float | int:
    if test_size >= 2 and test_size.is_integer():
        return int(test_size)
    if 0 < test_size < 1:
        return test_size
    raise BadInput(
        "test", f"{test_size:g}", "a fraction below 1 and above 0, or a whole number of rows from 2"
    )


def _narrowed(table: Table, columns: list[str] | None, drop: list[str] | None) -> Table:
    """The table with the columns asked for. One that was not chosen may be left out all the same."""
    there = {*table.columns, *dict(table.dropped)}
    narrowed = table if columns is None else table.only(_names("columns", columns, there))
    if drop is None:
        return narrowed
    unwanted = _names("drop", drop, there)
    return narrowed.without([n for n in unwanted if n in narrowed.columns or n not in table.columns])


def _names(option: str, words: list[str], there: Collection[str]) -> list[str]:
    """Each word as it is where that is a column's name, else split at its commas."""
    pieces = [[word] if word in there else word.split(",") for word in words]
    names = [n if n in there else n.strip() for piece in pieces for n in piece if n.strip()]
    if not names:
        raise BadInput(option, "no name", "at least one column")
    return names


@app.command()
def models() -> None:
    """List the models that `compare` can fit."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from .evaluate import contenders

    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("name", "data", "missing values", "model", "estimator"):
        table.add_column(column, no_wrap=column == "name")
    for row, contender in contenders():
        missing = "summed out" if contender.missing else "not taken"
        table.add_row(contender.name, contender.data, missing, contender.label, row.name)
    Console().print(table)


def main() -> None:
    """Run the command line. A mistake in the call is one line and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a sign shows another, not a traceback
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
