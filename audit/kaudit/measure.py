"""The measure file beside a table: what varies from run to run, keyed by the table's cells and ops."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from kaudit.atomic import replacing
from kaudit.errors import UserError
from kaudit.wire import Measure


def measure_path(table: Path) -> Path:
    """`v1.jsonl` has its measures in `v1.measure.parquet`."""
    return table.with_name(table.name.removesuffix(".jsonl") + ".measure.parquet")


def write(path: Path, measures: Iterable[Measure]) -> None:
    """Write the measures whole or not at all, sorted by cell and op. Raises UserError where that cannot be done."""
    import pandas as pd  # half a second that only a finished sweep needs

    rows = sorted(map(msgspec.structs.astuple, measures))
    frame = pd.DataFrame(rows, columns=list(Measure.__struct_fields__)).astype({"device_us": "float64"})
    try:
        with replacing(path) as file:
            frame.to_parquet(file, index=False)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; mend that, then go on with --resume") from None


def read_times(table: Path) -> dict[tuple[str, str], float]:
    """`device_us` by cell and op, from the measure file beside a table; nothing where there is none.

    Raises UserError where the file is none of ours.
    """
    path = measure_path(table)
    if not path.exists():
        return {}
    import pandas as pd

    try:
        frame = pd.read_parquet(path, columns=["cell", "op", "device_us"]).dropna()
    except (OSError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise UserError(f"{path}: not a measure file: {what}; sweep again, or move it away") from None
    return dict(zip(zip(frame["cell"], frame["op"], strict=True), frame["device_us"].tolist(), strict=True))
