"""What each outcome, kind of change, finding and other word of a report means, how it is decided, and what to do."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from msgspec import Struct

from kaudit.change import KINDS
from kaudit.errors import UserError


class Entry(Struct, frozen=True):
    """`what` it is: a kind of change, an outcome, a finding or a word. `page` of the docs."""

    what: str
    meaning: str
    decided: str
    do: str
    page: str


OUTCOMES: Mapping[str, tuple[str, str, str]] = {
    "ran": (
        "the op ran, and each of its launches is accounted for",
        "every launch call has its device activity, between two sentinel kernels that were seen",
        "nothing; the row says which path ran, and why no faster one did",
    ),
    "predicted": (
        "the engine's own selector says that it would choose this path; nothing ran, and no kernel was seen",
        "the selector was asked for a GPU that need not be there; such a row never stands beside one that ran",
        "nothing; sweep the engine on that GPU to see what it really runs",
    ),
    "refused": (
        "the engine said no, in words, and ran nothing",
        "supports() of its adapter says so, or the engine raised an exception by which it says no on purpose",
        "nothing, if you do not promise the cell; forbid it in the matrix, or expect that the engine refuses it",
    ),
    "crashed": (
        "the cell ended in a signal, an exit, a CUDA error or an exception that is no refusal",
        "the engine raised what is no refusal of its; or the probe died with the cell open, and again alone with it",
        "run it by itself: kaudit sweep MATRIX --only ID",
    ),
    "hung": (
        "the cell did not end within --cell-timeout",
        "the probe was killed with the cell open, after the limit",
        "raise --cell-timeout if it compiles for so long; else it is a deadlock of the engine",
    ),
    "unseen": (
        "the cell ran, but the capture cannot vouch for what ran",
        "a check of the capture failed, and failed again alone in a fresh process; the row names the check. Of a "
        "prediction: a part of the selector could not be asked where the sweep ran; the row names it",
        "ask kaudit doctor what is in the way, then sweep again; nothing is known of the cell: do not take it for good",
    ),
    "skipped": (
        "not run: the combination contradicts itself, or the adapter cannot express it",
        "before anything runs, by the matrix or by supports() of the adapter; the row has the reason",
        "nothing; forbid the combination in the matrix to have no row of it",
    ),
}
"""Each outcome of a row: meaning, how it is decided, what to do."""

CHANGES: Mapping[str, tuple[str, str]] = {
    "wrong_result": (
        "the numeric check of the row says wrong or unwritten, and did not in the baseline",
        "treat it as a bug of the kernel that ran: kaudit show TABLE --cell ID names it",
    ),
    "crashed": (
        "the outcome is crashed, and is not in the baseline",
        "run the cell by itself: kaudit sweep MATRIX --only ID",
    ),
    "hung": (
        "the outcome is hung, and is not in the baseline",
        "run the cell by itself with a longer --cell-timeout: compilation can take minutes, a deadlock does not end",
    ),
    "contradiction": (
        "the path read off the kernels is not the one that the engine says it took, and in the baseline it is",
        "believe the kernels; mend what the engine reports, or the patterns of its adapter",
    ),
    "silent_fallback": (
        "a path that stands before the one that ran in the engine's list has no reason that was heard during the run; "
        "and in the baseline it had one, or it ran, or was not listed before what ran, or the cell is new",
        "restore the fast path; or have the engine announce the reason; or waive it with a day on which that ends",
    ),
    "unseen": (
        "the outcome is unseen, and is not in the baseline",
        "ask kaudit doctor what is in the way, then sweep again; if it stays unseen, report the row and that output",
    ),
    "graph_downgrade": (
        "fewer of the op's kernels came out of a CUDA graph than before, or than the cell newly asks for",
        "see whether the batch size left the captured buckets, or an op broke the capture",
    ),
    "announced_fallback": (
        "the path stands later in the engine's list than before, or newly not first; and the engine said by itself, "
        "during the run, why it did not take each of the faster ones",
        "decide whether you can live with the reason; add it to fail_on to have the gate fail",
    ),
    "predicted_fallback": (
        "by the engine's selector alone, in two tables of predictions: the path stands later in the engine's list than "
        "before, or newly not first; or the cell is new, and its path is not the first. Whether the engine would "
        "announce it only a run tells",
        "read the reason; sweep the engine on that GPU to see whether it is so, and whether it is said",
    ),
    "slower": (
        "with --timing: the samples of the op, or of the call, are larger than the baseline's times 1.05, by a rank "
        "test over all cells at once; times taken at other clocks are not compared",
        "look for a change of kernel or of launches in the same cell; sweep again if other work was on the machine",
    ),
    "refused": (
        "the outcome is refused, and is neither refused, crashed nor hung in the baseline",
        "restore the support, or take the cell out of what you promise",
    ),
    "removed": (
        "the row is gone or skipped now, or its result is no longer checked",
        "see that the matrix and the adapter still have the cell",
    ),
    "flapping": (
        "the outcome is one that another run of the baseline's cell had, too; or only another run of it differs, and "
        "not for the worse; or not all that other runs of the baseline showed is seen now",
        "find out what the choice hangs on: --repeat shows whether it is chance, --isolate-sample whether it is order",
    ),
    "rerouted": (
        "the kernels differ by name, the path has the same rank",
        "compare the times; a new version of a library is the usual reason",
    ),
    "relaunched": (
        "the kernels are the same by name, their counts, grids, blocks, registers or families are not",
        "compare the times; a new compiler, tile size or heuristic is the usual reason",
    ),
    "reason_changed": (
        "the path is the same, the reasons, the claim or the engine's list are not",
        "read the sentence; nothing runs differently",
    ),
    "added": (
        "only the newer table has the row or checks its result, and nothing is wrong with it",
        "nothing; commit the table",
    ),
    "faster": (
        "with --timing: the baseline's samples are larger than those of the op, or of the call, times 1.05, by a rank "
        "test over all cells at once; times taken at other clocks are not compared",
        "keep the table and its measures, so that the next sweep is held against them",
    ),
    "improved": (
        "the path stands earlier in the engine's list than before; or more of the op is in a CUDA graph; or what "
        "crashed or hung is refused in words now",
        "commit the table, so that the gate holds the gain",
    ),
    "recovered": (
        "the op runs, or its result is right, and was not in the baseline",
        "commit the table, so that the gate holds the gain",
    ),
}
"""Each kind of change but for its meaning, which KINDS has: how it is decided, what to do."""

FINDINGS: Mapping[str, tuple[str, str, str]] = {
    "older_kernel": (
        "a kernel whose name states an older chip generation than the GPU's",
        "by the arch that the kernel's name states; a family whose names state only the oldest chip that they are "
        "built for is left out",
        "see whether the library has a kernel for this chip, and what keeps it from being taken",
    ),
    "disagreement": (
        "two ways to say one call took different paths",
        "ops that share a name before = compute the same from the same inputs, and their paths differ",
        "have the callers say it in the way that takes the faster path",
    ),
    "ignored_feature": (
        "a feature of the cell has no effect: the result is wrong, and it is the right one without that feature",
        "--numerics holds a wrong result against the textbook with each feature off, the whole of it",
        "find where the feature is lost on the way to the kernel; users get text that looks plausible",
    ),
    "order_dependent": (
        "a cell comes to something else alone in a fresh process than after others: what ran before decides",
        "--isolate-sample runs a sample of the cells again, each in a process of its own, and the rows differ",
        "find what outlives the other cell: a cache, a tuning result, a flag; do not trust the row until then",
    ),
    "flapping": (
        "a cell comes to something else in another run, in a process as warm",
        "--repeat runs all cells again in the same order, and the rows differ",
        "find what the choice hangs on: tuning by time, free memory, a race; a single run proves nothing of it",
    ),
    "uncompared": (
        "of two runs of a cell one could not be seen, so that nothing is known of order or flapping",
        "the outcome of one run is unseen, and that of the other is not",
        "as for unseen",
    ),
    "error_growth": (
        "attention's error grows faster with the length of the KV cache than roundings add up",
        "--numerics: between two lengths of otherwise equal cells it grows by more than twice the root of their ratio, "
        "counted from an eighth of the tolerance at least",
        "look for partial sums kept in 16 bits, or merged without their maximum; a longer context will be wrong",
    ),
    "memory_growth": (
        "attention's memory grows faster than the KV cache: it keeps all scores, which no fused kernel does",
        "--timing measures the peak of each op; between the two largest lengths of otherwise equal cells it grows with "
        "kv_len to the power of 1.5 or more, whatever the allocator rounded",
        "see which path ran: a fused one was not taken, or its adapter makes a mask of all queries and keys",
    ),
}
"""Each finding of a single table: meaning, how it is decided, what to do."""


WORDS: Mapping[str, tuple[str, str, str]] = {
    "fallback": (
        "the path that ran is not the first of the engine's list",
        "by the kernels, which show the path, and by the order of the engine's own list",
        "read on: it is announced or silent; whether it costs time only times can tell",
    ),
    "announced": (
        "a reason that the engine gave by itself during the run: in a log, a warning or on stderr; and a fallback of "
        "which each faster path has one",
        "announced() of the adapter finds it in what was heard while the cell was warmed up and ran",
        "decide whether you can live with the reason",
    ),
    "silent": (
        "of a fallback: a faster path was not taken, and the engine announced no reason for that path",
        "one faster path without an announced reason is enough; kernels of no listed path need one for each",
        "have the engine announce the reason, or restore the path",
    ),
    "asked": (
        "a reason that the engine gave only when its predicates were called after the run",
        "explain() of the adapter",
        "nothing; it explains the fallback to the reader, and leaves it silent to everybody else",
    ),
    "unclassified": (
        "a kernel that no pattern of families.yaml matches",
        "by its name; it stands in no family and has no role, and expectations of a family do not meet it",
        "add a pattern to families.yaml, with where the name comes from",
    ),
}
"""Words that stand in reports beside those: meaning, how it is decided, what to do."""


def entries() -> Iterator[tuple[str, Entry]]:
    """Every word with what it stands for; a word may be both an outcome and the change to it."""
    for name, (meaning, decided, do) in OUTCOMES.items():
        yield name, Entry("outcome", meaning, decided, do, "docs/table.md")
    for kind, meaning in KINDS.items():
        decided, do = CHANGES[kind]
        yield kind, Entry("kind of change", meaning, decided, do, "docs/gate.md")
    for name, (meaning, decided, do) in FINDINGS.items():
        yield name, Entry("finding", meaning, decided, do, "docs/verdict.md")
    for name, (meaning, decided, do) in WORDS.items():
        yield name, Entry("word", meaning, decided, do, "docs/verdict.md")


def look_up(word: str) -> tuple[str, list[Entry]]:
    """The word as we spell it (`silent-fallback`, `Silent fallback` are silent_fallback) and all that it stands for.

    Raises UserError with the nearest words for one that stands for nothing.
    """
    known = list(entries())
    name = word.strip().lower().replace("-", "_").replace(" ", "_")
    if not (found := [entry for known_name, entry in known if known_name == name]):
        names = list(dict.fromkeys(name for name, _ in known))
        near = get_close_matches(name, names, n=3, cutoff=0.3) or names
        raise UserError(f'no kind "{word}"; nearest: {", ".join(near)}')
    return name, found
