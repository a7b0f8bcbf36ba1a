import pytest
import torch

from kaudit_probes.attribute import Healthy, Unhealthy
from kaudit_probes.capture import Capture, Session
from kaudit_probes.trace import TraceError


def test_leaf_ops_stand_for_kernels_on_a_cpu() -> None:
    x = torch.randn(2, 4, 8, 16)

    def body(session: Session) -> None:
        with session.span("cell")("fused"):
            torch.nn.functional.scaled_dot_product_attention(x, x, x)
        with session.span("cell")("unfused"):
            torch.softmax(x @ x.transpose(-1, -2), -1) @ x

    verdicts = Capture("cpu").run(body)
    names = {}
    for key, verdict in verdicts.items():
        assert isinstance(verdict, Healthy)
        names[key] = [(kernel.name, kernel.count) for kernel in verdict.kernels]
        assert verdict.device_us > 0
    assert names["cell", "fused"] == [("aten::_scaled_dot_product_flash_attention_for_cpu", 1)]
    assert names["cell", "unfused"] == [("aten::bmm", 2), ("aten::_softmax", 1)]


def test_cells_of_one_session_are_told_apart_and_sessions_follow_one_another() -> None:
    capture = Capture("cpu")
    x = torch.randn(8, 8)
    for _ in range(3):

        def body(session: Session) -> None:
            for cell, times in (("one", 1), ("three", 3)):
                with session.span(cell)("op"):
                    for _ in range(times):
                        torch.mm(x, x)

        counts = {
            cell: verdict.kernels[0].count
            for (cell, _), verdict in capture.run(body).items()
            if isinstance(verdict, Healthy)
        }
        assert counts == {"one": 1, "three": 3}


def test_a_broken_trace_file_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = Capture("cpu")

    def broken(_: object) -> None:
        raise TraceError("cut short")

    monkeypatch.setattr("kaudit_probes.capture.read", broken)

    def body(session: Session) -> None:
        with session.span("cell")("op"):
            torch.ones(2)

    assert capture.run(body) == {("cell", "op"): Unhealthy("the profiler's trace is not whole")}


def test_an_op_that_casts_its_scalar_is_that_op_not_a_copy() -> None:
    x = torch.randn(8)

    def body(session: Session) -> None:
        with session.span("cell")("op"):
            x * 2.0 + 1.0

    (verdict,) = Capture("cpu").run(body).values()
    assert isinstance(verdict, Healthy)
    assert [(kernel.name, kernel.count) for kernel in verdict.kernels] == [("aten::mul", 1), ("aten::add", 1)]
