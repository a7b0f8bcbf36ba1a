"""The engine's words in sentences: why a path was turned down, and how that differs from before."""

from kaudit.observation import Chosen, Predicted, Ran, Rejection, Source
from kaudit.ranks import named


def why(chosen: Chosen, lost: str | None) -> str:
    """The end of a sentence: `: reasons` where the engine announced some for the path that was lost, else that it did
    not, what it announced of other paths, and what it was asked. Of a prediction, what was asked is all there is."""
    if isinstance(chosen, Predicted):
        said = _quoted(chosen, "asked", lost)
        return f": {said}" if said else ""
    announced = _quoted(chosen, "announced", lost)
    if chosen.explains(lost):
        return f": {announced}"
    asked = _quoted(chosen, "asked", lost)
    hints = [f"{how}: {said}" for how, said in (("announced only", announced), ("asked", asked)) if said]
    return " without a word" + (f" ({'; '.join(hints)})" if hints else "")


def because(rejection: Rejection) -> str:
    return "; ".join(str(reason) for reason in rejection.reasons)


def reasons_changed(was: Chosen, now: Chosen) -> str:
    """What the engine says of a path that it turns down, and said before: the first difference."""
    before, after = _by_path(was), _by_path(now)
    for path, source in [*after, *(key for key in before if key not in after)]:
        said, said_before = after.get((path, source)), before.get((path, source))
        if said != said_before:
            return f"{source} about {path}: {said or 'nothing'}; before: {said_before or 'nothing'}"
    return "the same reasons stand in another order or form"


def claim_changed(op: str, was: Ran, now: Ran) -> str | None:
    """A sentence where the claim changed but not along with the path."""
    if was.claimed == now.claimed or (was.claimed == was.path and now.claimed == now.path):
        return None
    before = was.claimed or "nothing"
    return f"{op} runs {named(now.path)} and is claimed to run {now.claimed or 'nothing'}; before, {before}"


def _by_path(chosen: Chosen) -> dict[tuple[str, Source], str]:
    texts: dict[tuple[str, Source], str] = {}
    for rejection in chosen.rejections:
        key = rejection.path, rejection.source
        texts[key] = "; ".join(filter(None, (texts.get(key), because(rejection))))
    return texts


def _quoted(chosen: Chosen, source: Source, lost: str | None) -> str:
    """The reasons of the path that was lost; where there are none, those of all others, each with its path."""
    rejections = [rejection for rejection in chosen.rejections if rejection.source == source and rejection.reasons]
    if of_lost := [because(rejection) for rejection in rejections if rejection.path == lost]:
        return "; ".join(of_lost)
    return "; ".join(f"{rejection.path}: {because(rejection)}" for rejection in rejections)
