"""Faults of files that a sweep left: cut short, or with a stretch of zeros or garbage in them, as after a power cut."""

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from campaign.in_sweeps import SweepFault, needs
from campaign.stage import Stage, Wrong


def _cut(path: Path, chance: random.Random) -> None:
    """By some bytes; by two at least, as its last newline alone is no loss."""
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) - 1)])


def _spoil(path: Path, chance: random.Random) -> None:
    """A stretch of zeros or of bytes that are no UTF-8, anywhere in the file."""
    content = path.read_bytes()
    length = chance.randint(1, min(4096, len(content)))
    start = chance.randrange(len(content) - length + 1)
    stretch = chance.choice((b"\0", b"\xff", b"\xfe\x80")) * length
    path.write_bytes(content[:start] + stretch[:length] + content[start + length :])


Harm = Callable[[Path, random.Random], None]


def _journal(harm: Harm, stage: Stage) -> None:
    """Of a sweep that was killed with cells in it. What is resumed is right, or refused in one line."""
    started = stage.start()
    stage.wait_for("a finished batch", lambda: stage.journal.exists() and stage.journal.read_bytes().count(b"\n") > 1)
    started.process.kill()
    stage.end(started, -9)
    harm(stage.journal, stage.chance)
    ended = stage.sweep("--resume", codes=(0, 2))
    if ended.code == 2:
        needs(ended, str(stage.journal), "delete the file")
        stage.journal.unlink()
        stage.sweep()


def _table(harm: Harm, stage: Stage) -> None:
    """Whoever reads it is told so, in one line that names it."""
    stage.sweep()
    damaged = stage.folder / "damaged.jsonl"
    damaged.write_bytes(stage.table.read_bytes())
    harm(damaged, stage.chance)
    both = [str(stage.table), str(damaged)]
    reads = stage.chance.choice(
        (["check", str(damaged)], ["show", str(damaged)], ["diff", *both], ["gate", *reversed(both)], ["report", *both])
    )
    needs(stage.end(stage.popen([sys.executable, "-m", "kaudit", *reads]), 2), str(damaged))


def _measures(harm: Harm, must: tuple[int, ...], stage: Stage) -> None:
    """The file of measures beside a copy of the table. Times have no checksum: what can be read is not refused."""
    stage.sweep()
    for name in ("t.jsonl", "t.measure.parquet"):
        (stage.folder / name).write_bytes((stage.table.parent / name).read_bytes())
    harm(stage.folder / "t.measure.parquet", stage.chance)
    report = [sys.executable, "-m", "kaudit", "report", str(stage.folder / "t.jsonl")]
    ended = stage.end(stage.popen(report), *must)
    if ended.code == 2:
        needs(ended, str(stage.folder / "t.measure.parquet"))


def _left_behind(stage: Stage) -> None:
    """By writers that were killed: half a table, and half a journal of which no line is whole."""
    stage.table.with_name(".t.jsonl.tmp").write_bytes(b'{"schema":1')
    stage.journal.write_bytes(b'{"schema":1')
    if stage.sweep().code:
        raise Wrong("what was left behind is in the way")


DAMAGE = {
    fault.name: fault
    for fault in (
        SweepFault("journal cut", ("light",), partial(_journal, _cut)),
        SweepFault("journal spoilt", ("light",), partial(_journal, _spoil)),
        SweepFault("table cut", ("light",), partial(_table, _cut)),
        SweepFault("table spoilt", ("light",), partial(_table, _spoil)),
        SweepFault("measures cut", ("light",), partial(_measures, _cut, (2,))),
        SweepFault("measures spoilt", ("light",), partial(_measures, _spoil, (0, 2))),
        SweepFault("halves left behind", ("light",), _left_behind),
    )
}
