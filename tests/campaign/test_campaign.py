"""A part of the campaign, the same faults each time: one of each sort that needs no GPU."""

import pytest

pytest.importorskip("torch")
from campaign.draw import Planned, planned, possible
from campaign.hold import Campaign

SEED = 5
# fmt: off
LIGHT = {
    "segfault", "OOM killer", "killed once", "stopped", "megabytes printed", "garbage on the pipe",
    "deep JSON on the pipe", "flood on the pipe", "probe killed", "sweep killed", "file size limit", "disk full",
    "folder removed", "no temporary folder", "stdout closed", "stderr full", "journal spoilt", "table cut",
    "measures spoilt", "clock jumps",
}
# fmt: on
REAL = {"host memory limit", "stdout closed by the cell", "streams taken away", "unprintable exception"}
KINDS = {
    probe: [fault for fault in own if fault.name in (REAL if probe == "real" else LIGHT)]
    for probe, own in possible(("light", "real")).items()
}
SWEEPS = planned(SEED, sum(map(len, KINDS.values())), KINDS)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return Campaign(tmp_path_factory.mktemp("campaign"), SEED)


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: ", ".join(sweep.kinds))
def test_faults_hold(campaign: Campaign, sweep: Planned) -> None:
    assert not [str(failure) for failure in campaign.hold(sweep)]


def test_each_sort_is_planted() -> None:
    assert {kind.partition(": ")[2] for sweep in SWEEPS for kind in sweep.kinds} >= (LIGHT | REAL) - {"disk full"}
