"""A campaign of faults, planted into real sweeps: `python tests/campaign --seed 7 --faults 200`.

Whatever happens to a sweep, nothing may be lost and nothing be wrong: each cell without a fault has the rows that it
has in a sweep without any, each other one the outcome that its fault is, and each end is an exit code and one clear
line.
Exits with 1 if any fault comes to something else, and says how to plant it again.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from campaign.draw import Planned, planned, possible
from campaign.hold import Campaign, Failure


def main() -> int:
    arguments = _arguments()
    probes = ("light", "cuda") if arguments.device == "cuda" else ("light", "real")
    kinds = possible(probes, arguments.only)
    if not any(kinds.values()):
        print(f'error: --only: no kind of fault holds "{arguments.only}"; leave it out to see all', file=sys.stderr)
        return 2
    sweeps = planned(arguments.seed, arguments.faults, kinds)
    chosen = [sweep for sweep in sweeps if arguments.at in (None, sweep.index)]
    if not chosen:
        print(f"error: --at: no sweep {arguments.at}; name one of 0 to {len(sweeps) - 1}", file=sys.stderr)
        return 2
    failures: list[Failure] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        campaign = Campaign(Path(folder), arguments.seed)
        for sweep in chosen:
            found = campaign.hold(sweep)
            failures += found
            mark = "FAILED" if found else "held"
            print(f"#{sweep.index} {mark}: {', '.join(sweep.kinds)}", *found, sep="\n    ", file=sys.stderr, flush=True)
    again = f"python tests/campaign --device {arguments.device} --seed {arguments.seed} --faults {arguments.faults}"
    again += f" --only {arguments.only!r}" if arguments.only else ""
    report = _report(chosen, failures, again, time.monotonic() - began)
    print(report)
    if arguments.report:
        arguments.report.write_text(report + "\n", "utf-8")
    return 1 if failures else 0


def _report(sweeps: list[Planned], failures: list[Failure], again: str, seconds: float) -> str:
    count = Counter(kind for sweep in sweeps for kind in sweep.kinds)
    failed = Counter(kind for failure in failures for kind in set(failure.kinds))
    lines = [f"{'kind':44} planted  held  failed"]
    lines += [f"{kind:44} {count[kind]:7} {count[kind] - failed[kind]:5} {failed[kind]:7}" for kind in sorted(count)]
    lines += [f"{failure}; again: {again} --at {failure.index}" for failure in failures]
    planted, lost = count.total(), sum(min(failed[kind], count[kind]) for kind in count)
    lines.append(f"{planted} faults in {len(sweeps)} sweeps, {seconds:.0f} s: {planted - lost} held, {lost} failed")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="decides kinds, cells, times and mix")
    parser.add_argument("--faults", type=int, default=200, help="how many to plant at least")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda adds what breaks a GPU")
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds whose name holds this")
    parser.add_argument("--at", type=int, metavar="INDEX", help="only the sweep of this number")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
