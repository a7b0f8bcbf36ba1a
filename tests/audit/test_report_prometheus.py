from collections import Counter

from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families
from reports_for_tests import diffed, gated, golden, reports
from tables_for_tests import announced, asked, ran, table

from golden.loss import CELLS, LOST
from kaudit.expect import Miss
from kaudit.observation import Unseen
from kaudit.report.judged import Report
from kaudit.report.prometheus import render

Samples = dict[tuple[str, str, str], float]


def samples(report: Report) -> Samples:
    """Metric, op and axis to value, as Prometheus reads them."""
    text = "".join(f"{line}\n" for line in render(report))
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        for sample in family.samples:
            assert sample.labels["engine"] == report.after.header.stamp.engine
            assert sample.labels["matrix"] == report.after.header.stamp.matrix
            key = sample.name, sample.labels.get("op", ""), sample.labels.get("axis", "")
            assert key not in found
            found[key] = sample.value
    return found


def test_a_fallback_counts_once_for_each_axis_and_an_op_without_one_has_a_zero() -> None:
    fell = ran("eager", asked("flash"), announced("split"), announced("flash"))
    found = samples(gated(table(ran("flash")), table(fell)))
    assert found == {
        ("kaudit_fallbacks", "attention", "head_dim"): 1,
        ("kaudit_fallbacks", "attention", "said"): 1,
        ("kaudit_silent_fallbacks", "attention", ""): 0,
        ("kaudit_silent_fallbacks", "rms_norm", ""): 0,
        ("kaudit_unseen", "", ""): 0,
        ("kaudit_gate_passed", "", ""): 1,
    }


def test_a_reason_for_one_faster_path_leaves_the_silence_about_another() -> None:
    found = samples(gated(table(ran("flash")), table(ran("eager", announced("flash")))))
    assert found["kaudit_silent_fallbacks", "attention", ""] == 1
    assert found["kaudit_gate_passed", "", ""] == 0


def test_what_nobody_explains_is_of_an_unknown_axis() -> None:
    found = samples(gated(table(ran("flash")), table(ran("eager"))))
    assert found["kaudit_fallbacks", "attention", "unknown"] == 1
    assert found["kaudit_silent_fallbacks", "attention", ""] == 1
    assert found["kaudit_gate_passed", "", ""] == 0


def test_unseen_cells_are_counted_and_a_diff_passes_no_gate() -> None:
    found = samples(diffed(table(ran("flash")), table(Unseen("a sentinel was lost"), op="*")))
    assert found["kaudit_unseen", "", ""] == 1
    assert ("kaudit_gate_passed", "", "") not in found


def test_an_expectation_that_is_not_met_fails_the_gate() -> None:
    one = table(ran("flash"))
    assert samples(gated(one, one, unmet=(Miss("", "no"),)))["kaudit_gate_passed", "", ""] == 0


@given(reports())
def test_every_label_is_read_as_it_was(report: Report) -> None:
    counts = Counter(name for name, *_ in samples(report))
    assert counts["kaudit_silent_fallbacks"] == len(report.after.header.paths)


def test_the_golden_loss() -> None:
    found = samples(golden())
    assert LOST <= found["kaudit_fallbacks", "attention", "head_dim"] <= CELLS
    assert found["kaudit_silent_fallbacks", "attention", ""] > 0
