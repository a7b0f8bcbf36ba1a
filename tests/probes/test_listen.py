"""What an engine says is heard, per cell: run in a process whose stdout and stderr are a file, as the probe's are."""

import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import json, logging, os, sys, warnings
from kaudit_probes.listen import Listener, forget_output
def heard(listener):
    said = listener.heard()
    return [[record.getMessage() for record in said.records], list(said.warnings), said.output]
result = open(sys.argv[1], "w")
"""


def run(tmp_path: Path, code: str) -> object:
    import json

    with (tmp_path / "output").open("wb+", buffering=0) as output:
        subprocess.run(
            [sys.executable, "-c", PRELUDE + code, str(tmp_path / "result")],
            stdout=output, stderr=output, check=True, timeout=60,
        )  # fmt: skip
    return json.loads((tmp_path / "result").read_text())


def test_logs_warnings_and_raw_output_of_one_cell(tmp_path: Path) -> None:
    code = """
os.write(2, b"before")
listener = Listener()
with listener.listening():
    logging.getLogger("engine").info("took %s", "eager")
    logging.getLogger("engine").debug("not said to anyone")
    warnings.warn("no flash")
    os.write(2, b"C says no")
    print("python says no")
os.write(2, b"after")
json.dump(heard(listener), result)
"""
    assert run(tmp_path, code) == [["took eager"], ["no flash"], "C says nopython says no\n"]


def test_a_once_only_warning_is_heard_by_each_cell(tmp_path: Path) -> None:
    code = """
both = []
for _ in range(2):
    listener = Listener()
    with listener.listening():
        warnings.warn("once only")
    both.append(heard(listener)[1])
json.dump(both, result)
"""
    assert run(tmp_path, code) == [["once only"], ["once only"]]


@pytest.mark.parametrize("megabytes", [1, 3])
def test_megabytes_are_cut_to_their_end_and_forgotten(tmp_path: Path, megabytes: int) -> None:
    code = f"""
listener = Listener()
with listener.listening():
    os.write(1, b"x" * {megabytes} * 1048576 + b"end")
said = heard(listener)[2]
forget_output()
json.dump([len(said), said[-4:], os.fstat(1).st_size], result)
"""
    assert run(tmp_path, code) == [65536, "xend", 0]


def test_a_file_that_a_shell_opened_is_neither_read_nor_emptied(tmp_path: Path) -> None:
    code = """
listener = Listener()
with listener.listening():
    print("to the log")
forget_output()
json.dump(heard(listener), result)
"""
    command = f"exec '{sys.executable}' -c \"$1\" '{tmp_path}/result' > '{tmp_path}/log' 2>&1"
    subprocess.run(["bash", "-c", command, "bash", PRELUDE + code], check=True, timeout=60)
    assert (tmp_path / "log").read_text() == "to the log\n"
    assert (tmp_path / "result").read_text() == '[[], [], ""]'


@pytest.mark.parametrize(
    "leaves",
    [
        "sys.stdout = sys.stderr = None",
        "del sys.stdout, sys.stderr",
        "sys.stdout = sys.stderr = object()",
        "sys.stdout = sys.stderr = Raises()",
        "sys.stdout.close(); sys.stderr.close()",
        "sys.stdout.detach(); sys.stderr.detach()",
        "os.close(1); os.close(2)",
        "os.dup2(nowhere, 1); os.dup2(nowhere, 2)",
    ],
)
def test_whatever_a_cell_leaves_in_the_place_of_the_streams_the_next_one_is_heard(tmp_path: Path, leaves: str) -> None:
    code = f"""
class Raises:
    def flush(self):
        raise KeyError("no flush")
nowhere = os.open(os.devnull, os.O_WRONLY)
said = []
for cell in ("one", "two"):
    listener = Listener()
    with listener.listening():
        print(cell, "by python")
        print(cell, "to stderr", file=sys.stderr)
        os.write(1, b"by C\\n")
        {leaves}
    said.append(sorted(heard(listener)[2].split("\\n")))
{leaves}
forget_output()
json.dump(said, result)
result.close()
os._exit(0)  # a process ends with the streams it has
"""
    assert run(tmp_path, code) == [["", "by C", f"{cell} by python", f"{cell} to stderr"] for cell in ("one", "two")]


def test_a_log_record_that_does_not_fit_its_own_text_silences_no_others(tmp_path: Path) -> None:
    code = """
listener = Listener()
with listener.listening():
    logging.getLogger("engine").info("%d heads", "eight")
    logging.getLogger("engine").info("%d heads", 8)
json.dump(heard(listener)[0], result)
"""
    assert run(tmp_path, code) == ["8 heads"]
