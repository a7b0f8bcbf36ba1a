"""The trial, on this machine and with losses planted in what it showed."""

import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_

from kaudit.diagnosis import Fault, Ok
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict
from kaudit_probes.doctor.trial import GRAPHS, LAUNCHES, Tried, attempt, judge


@pytest.fixture(scope="module")
def tried() -> Tried:
    return attempt("cpu")


def test_on_a_cpu_all_launches_come_back(tried: Tried) -> None:
    finding = judge(tried, "cpu")
    assert isinstance(finding, Ok), finding
    assert finding.found.startswith("all 300 calls came back")
    assert tried.start_up_s > 0
    assert tried.empty_s > 0


def planted(tried: Tried, op: str, verdict: Verdict | None) -> Tried:
    """The last session with another verdict on one range."""
    *first, last = tried.sessions
    rest = {key: seen for key, seen in last.items() if key != op}
    return replace(tried, sessions=(*first, rest if verdict is None else {**rest, op: verdict}))


def test_each_planted_loss_is_a_fault_that_names_its_range(tried: Tried) -> None:
    seen = tried.sessions[-1]["5 launches"]
    assert isinstance(seen, Healthy)
    (kernel,) = seen.kernels
    losses = {
        "4 of 5 launches are seen": Healthy((with_(kernel, count=4),), 1.0),
        "0 of 5 launches are seen": Healthy((), 0.0),
        "6 of 5 launches are seen": Healthy((with_(kernel, count=6),), 1.0),
        "a kernel that nobody launched: aten::mul": Healthy((with_(kernel, name="aten::mul"),), 1.0),
        "a sentinel is not seen": Unhealthy("a sentinel is not seen"),
        "its range is not told of": None,
    }
    for words, verdict in losses.items():
        finding = judge(planted(tried, "5 launches", verdict), "cpu")
        assert isinstance(finding, Fault)
        assert finding.found == f"1 of 30 ranges are not as launched: 5 launches: {words}"


def test_what_cupti_said_stands_with_the_fault(tried: Tried) -> None:
    words = "WARNING init.cpp:155] failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)\nother\n"
    finding = judge(replace(planted(tried, "1 launches", None), said=words), "cpu")
    assert isinstance(finding, Fault)
    assert finding.found.endswith("torch says: " + words.splitlines()[0])


def on_a_gpu(tried: Tried, graphs: dict[str, int]) -> Tried:
    """As a GPU shows it: kernels by their names, and replays beside the fills of torch's random state."""
    seen = tried.sessions[0]["1 launches"]
    assert isinstance(seen, Healthy)
    kernel = with_(seen.kernels[0], name="void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>")
    fill = with_(kernel, name="FillFunctor<long>", count=2)
    session: dict[str, Verdict] = {op: Healthy((with_(kernel, count=count),), 1.0) for op, count in LAUNCHES.items()}
    for op, nodes in graphs.items():
        session[op] = Healthy((fill, with_(kernel, count=nodes, graph=True)), 1.0)
    return replace(tried, sessions=(session,))


def test_graph_replays_count_without_what_torch_adds_and_swapped_ones_show(tried: Tried) -> None:
    assert isinstance(judge(on_a_gpu(tried, GRAPHS), "cuda"), Ok)
    names, counts = list(GRAPHS), list(GRAPHS.values())
    swapped = judge(on_a_gpu(tried, dict(zip(names, reversed(counts), strict=True))), "cuda")
    assert isinstance(swapped, Fault)
    assert "graph of 10: 20 of 10 launches are seen" in swapped.found


def test_what_c_code_prints_while_the_trial_runs_is_kept() -> None:
    """In a process like the doctor's, whose stdout and stderr are one file that it may read."""
    code = """if True:
        import os
        os.dup2(2, 1)
        from kaudit_probes.doctor import trial
        class Loud(trial.Capture):
            def session(self):
                os.write(2, b"CUPTI_ERROR_NOT_INITIALIZED")
                return super().session()
        trial.Capture = Loud
        assert "CUPTI_ERROR_NOT_INITIALIZED" in trial.attempt("cpu").said
    """
    with tempfile.TemporaryFile() as said:
        ended = subprocess.run([sys.executable, "-P", "-c", code], stdout=said, stderr=said, timeout=60)
        said.seek(0)
        assert ended.returncode == 0, said.read().decode()


@pytest.mark.gpu
def test_on_a_gpu_all_launches_and_replays_come_back() -> None:
    finding = judge(attempt("cuda"), "cuda")
    assert isinstance(finding, Ok), finding
