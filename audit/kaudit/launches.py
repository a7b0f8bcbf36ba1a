"""How the kernels of one op differ between two runs of the same rank."""

from collections import Counter
from functools import cache
from typing import Literal

from msgspec.structs import astuple

from kaudit.observation import Kernel, Ran
from kaudit.ranks import named
from kaudit.wording import count

SHORT = 48  # characters of a kernel's name in a sentence; the table keeps it whole
DIFFERENCES = 3  # in one sentence; the rows hold the rest
WRAPPERS = {"Kernel", "Kernel2", "device_kernel", "enable_sm90", "enable_sm90_or_later", "enable_sm80_to_sm89"}
"""CUTLASS's and FlashAttention-3's kernels are an argument of one of these."""


def kernels_changed(op: str, was: Ran, now: Ran) -> tuple[Literal["rerouted", "relaunched"], str]:
    """Rerouted: another path or other device functions. Relaunched: the same ones, launched or read differently."""
    before, after = ([kernel.name for kernel in ran.kernels] for ran in (was, now))
    came = [name for name in dict.fromkeys(after) if name not in before]
    gone = [name for name in dict.fromkeys(before) if name not in after]
    if was.path != now.path:
        how = "with other kernels" if came or gone else "with the same kernels"
        return "rerouted", f"{op} runs {named(now.path)} instead of {named(was.path)}, of the same rank, {how}"
    if gone and came and set(map(short, gone)) == set(map(short, came)):
        return "rerouted", f"{op} runs other variants of {_listed(came)}"
    if gone and came:
        return "rerouted", f"{op} runs {_listed(came)} instead of {_listed(gone)}"
    if came:
        return "rerouted", f"{op} also runs {_listed(came)}"
    if gone:
        return "rerouted", f"{op} no longer runs {_listed(gone)}"
    return "relaunched", f"{op}: {_relaunched(was.kernels, now.kernels)}"


@cache
def short(name: str) -> str:
    """A kernel's name without return type, namespaces, template and call arguments; inside wrappers, what they wrap."""
    bare, _, rest = name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("<")
    bare = bare.partition("(")[0].rsplit("::", 1)[-1]
    if bare in WRAPPERS and rest:
        return short(rest)
    return bare if len(bare) <= SHORT else f"{bare[: SHORT - 1]}…"


def _relaunched(was: tuple[Kernel, ...], now: tuple[Kernel, ...]) -> str:
    if [kernel.name for kernel in was] == [kernel.name for kernel in now]:
        found = [_configuration(old, new) for old, new in zip(was, now, strict=True) if old != new]
    else:
        before, after = _counts(was), _counts(now)
        found = [f"{short(name)} count {before[name]} → {n}" for name, n in after.items() if n != before[name]]
    if not found:
        return "the same launches in another order or other portions"
    more = f", and {count(len(found) - DIFFERENCES, 'more kernel')}" if len(found) > DIFFERENCES else ""
    return ", ".join(found[:DIFFERENCES]) + more


def _configuration(old: Kernel, new: Kernel) -> str:
    fields = zip(Kernel.__struct_fields__, astuple(old), astuple(new), strict=True)
    return f"{short(new.name)} " + " and ".join(
        [f"{name} {_value(a)} → {_value(b)}" for name, a, b in fields if a != b]
    )


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "×".join(map(str, value))
    return "unknown" if value is None else str(value)


def _counts(kernels: tuple[Kernel, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for kernel in kernels:
        counts[kernel.name] += kernel.count
    return counts


def _listed(names: list[str]) -> str:
    shorts = list(dict.fromkeys(map(short, names)))
    more = f" and {len(shorts) - DIFFERENCES} more" if len(shorts) > DIFFERENCES else ""
    return ", ".join(shorts[:DIFFERENCES]) + more
