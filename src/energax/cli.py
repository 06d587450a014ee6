"""The command line: `energax compare` and what belongs to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

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
        str | None, typer.Option("--models", "-m", help="Names, by commas. Default: all that suit.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Use these columns only, by commas.")
    ] = None,
    drop: Annotated[
        str | None, typer.Option("--drop", "-d", help="Leave these columns out, by commas (a label, say).")
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
    from .errors import BadInput
    from .evaluate import compare as run

    if output is not None and output.suffix != ".csv":
        raise BadInput("--output", str(output), "a name that ends in .csv")
    if output is not None and not output.parent.is_dir():
        raise BadInput("--output", f"no folder {output.parent}", "a folder that exists")
    if data is None and array is not None:
        raise BadInput("--array", repr(array), "an npz file to take it from")
    use_compilation_cache()
    table = digits() if data is None else read(data, array=array)
    if columns:
        table = table.only(_names(columns))
    if drop:
        table = table.without(_names(drop))
    size: Any = test_size
    if test_size > 1:
        if test_size != int(test_size):
            raise BadInput("--test-size", f"{test_size:g}", "a fraction below 1, or a whole number of rows")
        size = int(test_size)
    result = run(table, models, test=size, key=seed, progress=not quiet)
    console = Console()
    console.print(result)
    if output is not None:
        result.to_frame().to_csv(output)
        console.print(f"Written to {output}.", style="dim")
    if result.best is None:
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


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
    from .errors import EnergaxError

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
