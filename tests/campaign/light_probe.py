"""The fake probe with planted faults, under the real probe's command line: it takes a tenth of a second to start."""

import argparse
import os
import sys
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from campaign import planted
from campaign.in_cells import FAULTS
from fakes.fake_probe import Probe
from kaudit.table import Device
from kaudit.wire import Batch, Hello


class Light(Probe):
    def work(self, cell: str, fate: int, alone: bool) -> None:  # noqa: ARG002 (what is planted decides)
        time.sleep(float(os.environ["CAMPAIGN_DELAY"]))
        planted.run(cell, FAULTS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    arguments, _ = parser.parse_known_args()
    planted.begin()
    probe = Light(arguments.out_fd)
    device = Device("NVIDIA H200", "sm_90", 132, "580.1")
    probe.send(Hello("light", "1", device, {"torch": "2.8"}, {}, {"attention": ("fast", "slow"), "o_proj": ("fast",)}))
    with os.fdopen(arguments.in_fd, "rb") as batches:
        for line in batches:
            batch = msgspec.json.decode(line, type=Batch)
            probe.send(probe.observe(batch.cells, batch.blocking))


if __name__ == "__main__":
    main()
