"""Each check of `kaudit doctor` with planted facts: what it says of them, and in which state."""

from pathlib import Path

import pytest

from kaudit.diagnosis import CouldNotTell, Fault, Finding, NotApplicable, Ok, Warn
from kaudit_probes.doctor import cupti, gpu, host, packages, rivals

STATUS = "Name:\tpython\nTracerPid:\t{tracer}\nCapEff:\t{capabilities}\n"
USER = STATUS.format(tracer=0, capabilities="0000000000000000")
ADMIN = STATUS.format(tracer=0, capabilities="000001ffffffffff")
OWN = "/venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"
TOOLKIT = "/usr/local/cuda-12.1/extras/CUPTI/lib64/libcupti.so.2023.1.1"


def said(finding: Finding) -> str:
    """All that a finding says."""
    return " ".join(str(getattr(finding, name)) for name in finding.__struct_fields__)


@pytest.mark.parametrize(
    ("finding", "state", "says"),
    [
        (packages.platform("Linux version 6.8.0-45-generic (buildd)"), Ok, "6.8.0-45-generic"),
        (packages.platform("Linux version 5.15.90.1-microsoft-standard-WSL2"), Warn, "Windows Subsystem for Linux"),
        (packages.torch("2.13.0+cu130", "CUDA 13.0", {"CPU", "CUDA"}, "cuda"), Ok, "torch 2.13.0"),
        (packages.torch("2.8.0a0+34c6371d24.nv25.8", "CUDA 13.0", {"CPU", "CUDA"}, "cuda"), Ok, "nv25.8"),
        (packages.torch("2.7.1+cu126", "CUDA 12.6", {"CPU", "CUDA"}, "cuda"), Fault, "install torch 2.8 or newer"),
        (packages.torch("2.9.0", "CUDA 12.8", {"CPU"}, "cuda"), Fault, "cannot record CUDA activity"),
        (packages.torch("2.9.0", "CPU", set(), "cpu"), Fault, "cannot record CPU activity"),
        (packages.torch("2.9.0+cpu", "CPU", {"CPU"}, "cuda"), Ok, "CPU build"),
        (packages.beside({"triton": "3.7.1", "cuda-core": "1.2"}, "cuda"), Ok, "triton 3.7.1, cuda-core 1.2"),
        (packages.beside({"triton": "3.7.1", "cuda-core": ""}, "cuda"), Warn, "cuda-core absent"),
        (packages.beside({"triton": "", "cuda-core": ""}, "cpu"), NotApplicable, "a CPU needs neither"),
        (gpu.driver("auto", None, None, ""), NotApplicable, "CPU build"),
        (gpu.driver("cuda", None, (12, 9), ""), Fault, "install torch's CUDA build"),
        (gpu.driver("auto", (12, 8), None, "Found no NVIDIA driver"), Warn, "a sweep would take the CPU"),
        (gpu.driver("cuda", (12, 8), None, ""), Fault, "no libcuda.so.1"),
        (gpu.driver("cuda", (13, 0), (12, 4), "The NVIDIA driver on your system is too old"), Fault, "too old"),
        (gpu.driver("auto", (12, 8), (12, 4), ""), Warn, "takes CUDA 12.4, torch brings 12.8, which is newer"),
        (gpu.driver("auto", (12, 8), (13, 0), ""), Ok, "takes CUDA 13.0"),
        (gpu.arch("H200", (9, 0), ["sm_80", "sm_90"]), Ok, "H200, sm_90"),
        (gpu.arch("RTX 4090", (8, 9), ["sm_80", "sm_86", "sm_90"]), Ok, "sm_89"),
        (gpu.arch("H200", (9, 0), ["sm_90a"]), Ok, "sm_90"),
        (gpu.arch("B200", (10, 0), ["sm_90", "compute_90"]), Warn, "only PTX"),
        (gpu.arch("B200", (10, 0), ["sm_80", "sm_90a"]), Fault, "built for sm_80 sm_90a only"),
        (gpu.arch("T4", (7, 5), ["sm_80", "compute_80"]), Fault, "install a torch built for this chip"),
        (cupti.library([], []), CouldNotTell, "believe the trial"),
        (cupti.library([OWN], [OWN]), Ok, OWN),
        (cupti.library([TOOLKIT], []), Ok, TOOLKIT),
        (cupti.library([TOOLKIT], [OWN]), Warn, "LD_LIBRARY_PATH"),
        (cupti.library([OWN, TOOLKIT], [OWN]), Warn, "several are loaded"),
        (cupti.version(22), Warn, "of CUDA 12.4: CUPTI of CUDA 12.4 Update 1 to 12.5 may trace no kernels"),
        (cupti.version(26), Warn, "of CUDA 12.8: CUPTI before CUDA 13.1 may lose the first kernels"),
        (cupti.version(None), CouldNotTell, "no libcupti.so"),
        (cupti.version(130001), Warn, "of CUDA 13.0"),
        (cupti.version(130100), Ok, "of CUDA 13.1"),
        (rivals.injected({"PATH": "/bin", "LD_PRELOAD": "/lib/libjemalloc.so"}), Ok, "no variable"),
        (
            rivals.injected({"CUDA_INJECTION64_PATH": "/x.so", "NSYS_X": "1"}),
            Warn,
            "unset CUDA_INJECTION64_PATH NSYS_X",
        ),
        (rivals.injected({"NVTX_INJECTION64_PATH": "/x.so"}), Warn, "NVTX_INJECTION64_PATH=/x.so"),
        (rivals.injected({"KINETO_USE_DAEMON": "1"}), Warn, "KINETO_USE_DAEMON=1"),
        (rivals.injected({"LD_PRELOAD": "/opt/libToolsInjection64.so"}), Warn, "unset LD_PRELOAD"),
        (rivals.tools(["bash", "python"]), Ok, "none among the 2 processes"),
        (rivals.tools(["bash", "nv-hostengine"]), Warn, "dcgmi profile --pause"),
        (rivals.tools(["compute-sanitiz"]), Warn, "compute-sanitizer"),
        (rivals.debugger(USER), Ok, "nothing traces"),
        (rivals.debugger(STATUS.format(tracer=41, capabilities="0")), Warn, "process 41 traces this one"),
        (rivals.debugger("Name:\tpython\n"), CouldNotTell, "no TracerPid"),
        (rivals.permission("RmProfilingAdminOnly: 0\n", USER), Ok, "lets every user profile"),
        (rivals.permission("X: 1\nRmProfilingAdminOnly: 1\n", USER), Ok, "kaudit takes none"),
        (rivals.permission("RmProfilingAdminOnly: 1\n", ADMIN), Ok, "CAP_SYS_ADMIN"),
        (rivals.permission("ResmanDebugLevel: 4\n", USER), CouldNotTell, "needs no permission"),
        (host.temporary(Path("/tmp"), 5 << 30), Ok, "5.0 GiB free"),
        (host.temporary(Path("/tmp"), 5 << 20), Warn, "set TMPDIR"),
        (host.shared_memory(None), NotApplicable, "/dev/shm"),
        (host.shared_memory(64 << 20), Ok, "64 MiB free"),
        (host.shared_memory(1 << 20), Warn, "--shm-size"),
        (host.steering({}), Ok, "no variable"),
        (host.steering({"NVIDIA_TF32_OVERRIDE": "1"}), Ok, "NVIDIA_TF32_OVERRIDE=1"),
    ],
)
def test_a_planted_fact_has_its_state_and_its_words(finding: Finding, state: type[Finding], says: str) -> None:
    assert isinstance(finding, state), finding
    assert says in said(finding)


def test_the_loaded_cupti_is_read_off_the_maps_once_each() -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 42  "
    maps = "\n".join([f"{line}{OWN}", f"{line}{OWN}", f"{line}{TOOLKIT}", f"{line}/lib/libc.so.6", "7f02-7f03 rw-p"])
    assert cupti.loaded(maps) == [TOOLKIT, OWN]
    assert cupti.loaded("") == []


def test_a_cache_that_is_not_there_yet_counts_by_the_folder_it_would_be_made_in(tmp_path: Path) -> None:
    assert isinstance(host.cache(tmp_path / "a" / "b"), Ok)
    assert isinstance(host.cache(Path("/proc/1/a/b")), Warn)  # not even root makes a folder there


def test_triton_s_variables_say_where_its_cache_is(tmp_path: Path) -> None:
    assert host.triton_cache({}, tmp_path) == tmp_path / ".triton" / "cache"
    assert host.triton_cache({"TRITON_HOME": "/x"}, tmp_path) == Path("/x/.triton/cache")
    assert host.triton_cache({"TRITON_CACHE_DIR": "/y", "TRITON_HOME": "/x"}, tmp_path) == Path("/y")


def test_a_full_or_absent_temporary_folder_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert host.temporary_here() == Fault(
        "no temporary file can be written: No space left on device", "set TMPDIR to a folder with room"
    )
