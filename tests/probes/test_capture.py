import resource
import threading

import pytest
import torch

from kaudit.errors import UserError
from kaudit_probes.attribute import Healthy, Unhealthy
from kaudit_probes.capture import Capture, Session
from kaudit_probes.trace import TraceError


def kernels(session: Session, cell: str, op: str) -> list[list[tuple[str, int]]]:
    """Names and counts of each time that the op was opened."""
    shown = []
    for verdict in session.verdicts[cell][op]:
        assert isinstance(verdict, Healthy)
        shown.append([(kernel.name, kernel.count) for kernel in verdict.kernels])
    return shown


def test_leaf_ops_stand_for_kernels_on_a_cpu() -> None:
    x = torch.randn(2, 4, 8, 16)
    with Capture("cpu").session() as session:
        with session.span("cell")("fused"):
            torch.nn.functional.scaled_dot_product_attention(x, x, x)
        with session.span("cell")("unfused"):
            torch.softmax(x @ x.transpose(-1, -2), -1) @ x
    assert kernels(session, "cell", "fused") == [[("aten::_scaled_dot_product_flash_attention_for_cpu", 1)]]
    assert kernels(session, "cell", "unfused") == [[("aten::bmm", 2), ("aten::_softmax", 1)]]
    assert all(verdict.device_us > 0 for verdict in session.verdicts["cell"]["fused"] if isinstance(verdict, Healthy))


def test_openings_of_one_session_are_told_apart_and_sessions_follow_one_another() -> None:
    capture = Capture("cpu")
    x = torch.randn(8, 8)
    for _ in range(3):
        with capture.session() as session:
            for cell, times in (("one", 1), ("three", 3), ("one", 2)):
                with session.span(cell)("op"):
                    for _ in range(times):
                        torch.mm(x, x)
        assert kernels(session, "one", "op") == [[("aten::mm", 1)], [("aten::mm", 2)]]
        assert kernels(session, "three", "op") == [[("aten::mm", 3)]]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_sentinel_is_seen_by_itself(device: str) -> None:
    match Capture(device).sentinel():
        case Healthy((kernel,)):
            assert (kernel.role, kernel.count) == ("fill", 1)
        case other:
            pytest.fail(str(other))


def test_a_broken_trace_file_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = Capture("cpu")

    def broken(_: object) -> None:
        raise TraceError("cut short")

    monkeypatch.setattr("kaudit_probes.capture.read", broken)
    with capture.session() as session, session.span("cell")("op"):
        torch.ones(2)
    assert session.verdicts == {"cell": {"op": [Unhealthy("the profiler's trace is not whole")]}}


def test_a_trace_for_which_there_is_no_room_says_so() -> None:
    capture = Capture("cpu")
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capture.session() as session:
        with session.span("cell")("op"):
            torch.ones(2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert session.verdicts == {"cell": {"op": [Unhealthy("the profiler's trace cannot be written: File too large")]}}


@pytest.mark.parametrize(
    ("tempdir", "why"), [(None, "no usable temporary folder"), ("/dev/null", "Not a directory")], ids=str
)
def test_without_a_temporary_folder_nothing_is_seen(
    tempdir: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = Capture("cpu")
    monkeypatch.setattr("tempfile.tempdir", tempdir)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nowhere"])
    with capture.session() as session, session.span("cell")("op"):
        torch.ones(2)
    assert session.verdicts == {"cell": {"op": [Unhealthy(f"the profiler's trace cannot be written: {why}")]}}


def test_a_profiler_that_opens_inside_a_session_costs_its_verdicts_not_the_process() -> None:
    capture = Capture("cpu")
    with capture.session() as session:
        with session.span("cell")("op"):
            torch.ones(2)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            pass
    assert session.verdicts == {"cell": {"op": [Unhealthy("another profiler ran in the session and ended it")]}}
    with capture.session() as session, session.span("cell")("op"):
        torch.ones(2)
    assert kernels(session, "cell", "op") == [[("aten::fill_", 1)]]


def test_an_op_that_casts_its_scalar_is_that_op_not_a_copy() -> None:
    x = torch.randn(8)
    with Capture("cpu").session() as session, session.span("cell")("op"):
        x * 2.0 + 1.0
    assert kernels(session, "cell", "op") == [[("aten::mul", 1), ("aten::add", 1)]]


def _aside(device: str) -> None:
    """A softmax on a thread of its own."""
    aside = threading.Thread(target=torch.softmax, args=(torch.ones(8, 8, device=device), -1))
    aside.start()
    aside.join()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("where", ["in one of two", "behind the only one", "in the only one"])
def test_what_another_thread_launches_is_the_only_range_s_or_cannot_be_told(device: str, where: str) -> None:
    x, capture = torch.ones(8, 8, device=device), Capture(device)
    with capture.session() as session:
        if where == "in one of two":
            with session.span("cell")("other"):
                torch.mm(x, x)
        with session.span("cell")("op"):
            torch.mm(x, x)
            if where != "behind the only one":
                _aside(device)
        if where == "behind the only one":
            _aside(device)
    (verdict,) = session.verdicts["cell"]["op"]
    match verdict:
        case Healthy(kernels):
            assert where == "in the only one"
            assert {"matmul", "softmax"} <= {kernel.role for kernel in kernels}
        case Unhealthy(why):
            assert where != "in the only one"
            assert "another thread's" in why


def test_openings_do_not_overlap() -> None:
    session = Session()
    op_span = session.span("cell")
    with op_span("outer"), pytest.raises(UserError, match="marks inner while outer is open, for cell"):  # noqa: SIM117
        with op_span("inner"):
            pass
    with op_span("inner"):
        pass
