"""`kaudit merge TABLE…`: the shards of a sweep to the table of the whole."""

from pathlib import Path
from typing import Annotated

import typer

from kaudit.terminal import data, words


def merge(
    tables: Annotated[list[Path], typer.Argument(metavar="TABLE…", help="What kaudit sweep --shard wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The table of the whole sweep.")],
) -> None:
    """Join the shards of a sweep, and their measures: the table is that of a sweep in one go, to the byte.

    Exit 2 where a shard is missing, or two of them are not of one sweep.
    """
    from kaudit.growths import growths
    from kaudit.measure import measure_path, merged_measures, read_timings, with_measures
    from kaudit.measure import write as write_measures
    from kaudit.merge import merged
    from kaudit.outputs import check_table
    from kaudit.report.summary import summary
    from kaudit.report.times import times
    from kaudit.table import read, write

    check_table(out, *with_measures(*tables))
    whole = merged({path: read(path) for path in tables})
    measures = merged_measures(tables)
    write(out, whole)
    write_measures(measure_path(out), measures, whole.header.stamp)
    words(f"no measures beside {path}" for path in tables if not measure_path(path).exists())
    words(summary(whole, growths(out)))
    words(times(whole, read_timings(out)))
    data([str(out)])
