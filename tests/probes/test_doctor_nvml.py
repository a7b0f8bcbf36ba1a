"""What the driver says of the GPU, planted; and the checks asked of an NVML that answers, refuses or is not there."""

import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from test_doctor_checks import said

from kaudit.diagnosis import Checked, CouldNotTell, Fault, Finding, FromDoctor, NotApplicable, Ok, Warn
from kaudit_probes.doctor import card, nvml
from kaudit_probes.doctor.checks import guarded

MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Oct 25 2023\nGCC version: gcc 12\n"


@pytest.mark.parametrize(
    ("finding", "state", "says"),
    [
        (nvml.answers("580.95.05", MODULE.format("580.95.05")), Ok, "driver 580.95.05"),
        (nvml.answers("580.95.05", MODULE.format("570.86")), Warn, "the kernel module is of 570.86"),
        (nvml.answers("580.95.05", ""), CouldNotTell, "is not told"),
        (nvml.mig(False, "NVIDIA H200", 132), Ok, "the whole GPU"),
        (nvml.mig(True, "NVIDIA H200 MIG 1g.18gb", 16), Warn, "MIG 1g.18gb with 16 SMs"),
        (nvml.sharing(0), Ok, "several processes"),
        (nvml.sharing(3), Warn, "one process at a time"),
        (nvml.sharing(2), Fault, "--compute-mode=0"),
        (nvml.clocks(0x1, 345, 1980, True), Ok, "SM clock 345 of 1980 MHz, persistence mode on"),
        (nvml.clocks(0x44, 900, 1980, False), Warn, "held back by: power cap, hardware thermal slowdown"),
        (nvml.ecc(0), Ok, "no uncorrected"),
        (nvml.ecc(3), Warn, "3 uncorrected memory errors"),
        (nvml.others([]), Ok, "no other process"),
        (nvml.others([72, 7]), Warn, "other processes on the GPU: 7, 72"),
    ],
)
def test_a_planted_fact_has_its_state_and_its_words(finding: Finding, state: type[Finding], says: str) -> None:
    assert isinstance(finding, state), finding
    assert says in said(finding)


class NotFound(Exception):
    pass


NVMLError_NotSupported = type("NVMLError_NotSupported", (Exception,), {})


@pytest.fixture
def split_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch sees an instance of a GPU that is split; NVML knows its id, and of ECC nothing."""

    def handle(uuid: str) -> str:
        if uuid != "MIG-42":
            raise NotFound(uuid)
        return "instance"

    def no_ecc(*_: object) -> int:
        raise NVMLError_NotSupported("Not Supported")

    fake = ModuleType("pynvml")
    fake.__dict__.update(
        NVMLError_NotFound=NotFound,
        NVMLError_InvalidArgument=NotFound,
        NVML_DEVICE_MIG_ENABLE=1,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle={"instance": "gpu"}.__getitem__,
        nvmlDeviceGetMigMode={"gpu": (1, 1)}.__getitem__,
        nvmlDeviceGetComputeMode={"instance": 3}.__getitem__,
        nvmlDeviceGetTotalEccErrors=no_ecc,
    )
    seen = SimpleNamespace(uuid="42", name="NVIDIA H200 MIG 1g.18gb", multi_processor_count=16)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: seen)
    return fake


@pytest.mark.usefixtures("split_gpu")
def test_of_a_split_gpu_the_instance_and_the_whole_are_asked_each_its_own() -> None:
    assert card.mig() == (True, "NVIDIA H200 MIG 1g.18gb", 16)
    assert card.compute_mode() == 3


@pytest.mark.usefixtures("split_gpu")
def test_what_the_gpu_does_not_have_is_not_applicable() -> None:
    assert guarded("ecc", lambda: nvml.ecc(card.memory_errors())) == NotApplicable("the GPU does not have it")


def test_a_check_that_cannot_look_says_so_and_never_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Finding:
        raise RuntimeError("driver went away\nlong story")

    assert guarded("clocks", broken) == CouldNotTell(
        "RuntimeError: driver went away", "nothing, if the trial is ok; else mend this first"
    )
    assert guarded("trial", broken) == CouldNotTell("RuntimeError: driver went away", "what the checks above say")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert isinstance(absent := guarded("nvml", lambda: nvml.answers(card.driver(), "")), CouldNotTell)
    assert absent.do == "install kaudit[torch] in that Python"


def test_without_torch_the_torch_check_is_the_fault_and_the_trial_is_not_ok() -> None:
    code = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv[1:] = ['--device', 'auto'];"
        "runpy.run_module('kaudit_probes.doctor', run_name='__main__')"
    )
    told = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, timeout=60).stdout
    answers = [msgspec.json.decode(line, type=FromDoctor) for line in told.splitlines()]
    found = {answer.name: answer.finding for answer in answers if isinstance(answer, Checked)}
    assert isinstance(torch_check := found["torch"], Fault)
    assert "install kaudit[torch]" in torch_check.do
    assert isinstance(found["trial"], CouldNotTell)
    assert isinstance(found["injection"], Ok)
