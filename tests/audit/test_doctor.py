"""`kaudit doctor` as a user meets it: lines, exit codes, and a process that dies or hangs while it checks."""

import subprocess
import sys
from pathlib import Path

import pytest

from kaudit import doctor
from kaudit.diagnosis import Checked, CouldNotTell, Fault, NotApplicable, Ok, Warn
from kaudit.doctor import blind_by, examine, lines, summary
from kaudit.errors import UserError

SEEN = Checked("trial", Ok("all came back"))


def kaudit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kaudit", *arguments], capture_output=True, text=True, timeout=120)


def test_on_this_machine_s_cpu_kaudit_can_see() -> None:
    ended = kaudit("doctor", "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    first, *_ = ended.stdout.splitlines()
    assert first.startswith("python       ok              kaudit 0.")
    assert "\ntrial        ok              all 300 calls came back" in ended.stdout
    assert "\ncupti        not applicable" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert "kaudit can see here: " in ended.stderr


@pytest.mark.parametrize(
    ("checked", "names"),
    [
        ([SEEN], []),
        ([Checked("mig", Warn("on", "mind it")), Checked("nvml", CouldNotTell("absent", "install it")), SEEN], []),
        ([Checked("torch", Fault("too old", "update it")), SEEN], ["torch"]),
        ([Checked("trial", Fault("lost", "mend it"))], ["trial"]),
        ([Checked("trial", CouldNotTell("raised", "mend it"))], ["trial"]),
        ([Checked("torch", Ok("2.9"))], ["trial"]),
        (
            [Checked("torch", Fault("absent", "install it")), Checked("trial", CouldNotTell("x", "y"))],
            ["torch", "trial"],
        ),
    ],
)
def test_kaudit_sees_where_the_trial_is_ok_and_nothing_is_at_fault(checked: list[Checked], names: list[str]) -> None:
    assert blind_by(checked) == names


def test_every_state_is_told_and_what_to_do_stands_below() -> None:
    checked = [
        Checked("gpu", Fault("sm_100: torch is built for sm_80 only", "install a torch built for this chip")),
        Checked("ecc", NotApplicable("the GPU does not have it")),
        Checked("nvml", CouldNotTell("absent " * 12, "install it")),
        SEEN,
    ]
    assert list(lines(checked)) == [
        "gpu          fault           sm_100: torch is built for sm_80 only",
        "                             do: install a torch built for this chip",
        "ecc          not applicable  the GPU does not have it",
        "nvml         could not tell  absent absent absent absent absent absent absent",
        "                             absent absent absent absent absent",
        "                             do: install it",
        "trial        ok              all came back",
    ]
    assert summary(checked) == "1 fault, 1 not applicable, 1 could not tell, 1 ok"


def python_that(folder: Path, *commands: str) -> str:
    """A program in Python's place, which says two things and then does `commands`."""
    program = folder / "python"
    says = [
        '{"type":"checked","name":"torch","finding":{"type":"ok","found":"2.9"}}',
        '{"type":"checking","name":"trial"}',
    ]
    program.write_text("\n".join(["#!/bin/bash", *(f"echo '{line}'" for line in says), *commands]))
    program.chmod(0o755)
    return str(program)


def test_the_check_that_the_process_died_of_is_a_fault(tmp_path: Path) -> None:
    torch, trial = examine(python_that(tmp_path, "echo cupti: broken >&2", "kill -SEGV $$"), "auto")
    assert torch == Checked("torch", Ok("2.9"))
    assert isinstance(trial.finding, Fault)
    assert trial.name == "trial"
    assert trial.finding.found == "the process that checks died of it: SIGSEGV: cupti: broken"


def test_a_check_that_hangs_ends_and_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIMIT", 0.5)
    _, trial = examine(python_that(tmp_path, "exec sleep 60"), "auto")
    assert isinstance(trial.finding, Fault)
    assert "no end after" in trial.finding.found


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("exit 0", "died of it: exit 0"),
        ("exec yes", "died of it: printed more than 1 MiB"),
        ('echo \'{"type":"checked","name":"gpu","finding":{"type":"ok","found":""}}\'; exit 3', "get to it: exit 3"),
    ],
)
def test_a_process_that_ends_before_the_trial_is_done_is_a_fault_that_says_how(
    tmp_path: Path, command: str, found: str
) -> None:
    *_, trial = examine(python_that(tmp_path, command), "auto")
    assert trial.name == "trial"
    assert isinstance(trial.finding, Fault)
    assert trial.finding.found.endswith(found)


@pytest.mark.parametrize(
    ("python", "fault"),
    [
        ("/nowhere/python", "No such file or directory"),
        ("/bin/false", "exit 1: it printed nothing"),
        ("/bin/true", "exit 0: it printed nothing"),
        ("/bin/echo", "it printed something else"),
    ],
)
def test_a_python_that_cannot_be_asked_is_one_line(python: str, fault: str) -> None:
    with pytest.raises(
        UserError, match=f"^--python {python}: cannot be examined: {fault}; name a Python that has kaudit$"
    ):
        examine(python, "auto")


def test_what_the_user_can_mend_is_one_line_and_exit_2() -> None:
    for arguments, fault in (
        (["--device", "tpu"], '--device: "tpu" is not one of auto, cpu, cuda'),
        (["--python", "/nowhere/python"], "/nowhere/python: cannot be examined: No such file or directory"),
    ):
        ended = kaudit("doctor", *arguments)
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert fault in ended.stderr
        assert ended.stderr.endswith("(docs/capture.md)\n")


@pytest.mark.gpu
def test_on_a_gpu_kaudit_can_see_and_the_hints_that_need_no_rights_are_given() -> None:
    ended = kaudit("doctor", "--device", "cuda")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    states = {line[:13].strip(): line[13:29].strip() for line in ended.stdout.splitlines() if line[0] != " "}
    assert states["trial"] == "ok"
    for name in ("driver", "nvml", "sharing", "clocks", "gpu", "cupti"):  # others: a container may hide them
        assert states[name] in ("ok", "warning"), ended.stdout
