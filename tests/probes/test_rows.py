from kaudit.cell import Cell
from kaudit.observation import Kernel, Rejection, Said, Unmet
from kaudit_probes.engines import Path
from kaudit_probes.rows import Words, graph_mode, merged, path_shown, ran

PATHS = (Path("split", ("^decode_kernel", "^merge_kernel")), Path("flash", ("^flash_",)), Path("eager"))


def test_a_path_ran_if_all_it_shows_is_seen() -> None:
    assert path_shown(["decode_kernel", "merge_kernel", "copy"], PATHS) == "split"
    assert path_shown(["flash_fwd"], PATHS) == "flash"


def test_the_path_that_shows_nothing_ran_if_no_other_left_a_mark() -> None:
    assert path_shown(["softmax", "gemm"], PATHS) == "eager"


def test_half_of_a_fast_path_is_no_path() -> None:
    assert path_shown(["decode_kernel", "softmax"], PATHS) is None


def test_a_fast_path_beside_the_kernels_of_another_is_no_path() -> None:
    assert path_shown(["flash_fwd", "decode_kernel", "merge_kernel"], PATHS) is None
    assert path_shown(["flash_fwd", "softmax", "copy"], PATHS) == "flash"


def test_a_kernel_that_two_paths_share_is_not_foreign_to_either() -> None:
    paths = (Path("split", ("^fwd", "^combine")), Path("whole", ("^fwd",)))
    assert path_shown(["fwd", "combine"], paths) == "split"
    assert path_shown(["fwd"], paths) == "whole"


def test_no_kernels_are_no_path() -> None:
    assert path_shown([], PATHS) is None


def test_kernels_that_match_nothing_are_no_path_where_each_path_shows_something() -> None:
    assert path_shown(["softmax"], PATHS[:2]) is None


def test_the_slow_path_has_the_roles_of_one_or_is_not_known() -> None:
    paths = (Path("fused", ("^flash_",)), Path("unfused", roles=frozenset({"matmul", "softmax"})))

    def path_of(*kernels: Kernel) -> str | None:
        cell = Cell.parse("prefill/bf16/kv-bf16/h8x8x64/contiguous/causal/none/plain/b1q1k1")
        return ran(cell, "attention", kernels, paths, Words({}, {}, {})).path

    product, softmax = Kernel("nvjet", "gemm", "matmul", 2), Kernel("soft", "unfused_softmax", "softmax", 1)
    fill = Kernel("fill", "fill", "fill", 1)
    assert path_of(fill, product, softmax) == "unfused"
    assert path_of(product) is path_of(fill) is path_of(Kernel("new_attention", "unclassified", "unknown", 1)) is None


def test_an_announcement_stands_before_an_answer_about_the_same_path() -> None:
    told = Rejection("split", "announced", (Said("page_size"),))
    asked = Rejection("split", "asked", (Unmet("page_size", "8", "a multiple of 16"),))
    other = Rejection("flash", "asked", (Said("arch"),))
    assert merged((told,), (asked, other)) == (told, other)


def test_a_reason_against_the_path_that_ran_does_not_stand_alone() -> None:
    asked = {"attention": tuple(Rejection(path, "asked", (Said(f"not {path}"),)) for path in ("split", "flash"))}
    cell = Cell.parse("prefill/bf16/kv-bf16/h8x8x64/contiguous/causal/none/plain/b1q1k1")
    found = ran(cell, "attention", (Kernel("flash_fwd", "fa2", "attention", 1),), PATHS, Words({}, {}, asked))
    assert {no.path: [str(reason) for reason in no.reasons] for no in found.rejections} == {
        "split": ["not split"],
        "flash": ["not flash", "kaudit: its kernels ran all the same"],
    }


def test_the_graph_mode_is_read_off_the_kernels() -> None:
    eager, captured = Kernel("k", "f", "r", 1), Kernel("k", "f", "r", 1, graph=True)
    assert [graph_mode(kernels) for kernels in ([], [eager], [captured], [eager, captured])] == [
        "eager",
        "eager",
        "full",
        "partial",
    ]


def test_what_a_path_launches_now_and_then_is_its_own_although_another_shows_it() -> None:
    paths = (
        Path("cascade", ("^prefix", "^decode", "^merge")),
        Path("split", ("^decode",), also=("^merge",)),
        Path("flash", ("^flash",)),
    )
    assert path_shown(["decode", "merge"], paths) == path_shown(["decode"], paths) == "split"
    assert path_shown(["prefix", "decode", "merge"], paths) == "cascade"
    assert path_shown(["flash", "merge"], paths) is None
    assert path_shown(["merge"], paths) is None


def test_an_engine_that_could_not_be_asked_was_not_silent_whatever_ran() -> None:
    cell = Cell.parse("decode/bf16/kv-bf16/h4x2x64/contiguous/causal/none/plain/b1q1k8")
    unasked = Words({}, {}, {}, unasked="ValueError: broke")
    halves = (Kernel("decode_kernel", "fa2", "attention", 1), Kernel("softmax", "unfused_softmax", "softmax", 1))
    neither = ran(cell, "attention", halves, PATHS, unasked)
    assert (neither.path, [no.path for no in neither.rejections]) == (None, [path.name for path in PATHS])
    slow = ran(cell, "attention", (Kernel("softmax", "unfused_softmax", "softmax", 1),), PATHS, unasked)
    assert all("could not be asked: ValueError: broke" in str(no.reasons[0]) for no in slow.rejections)
