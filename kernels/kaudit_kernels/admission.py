"""What a step is told of its requests, looked at before any kernel is asked: no kernel can mend a contradiction."""

from kaudit_kernels.problem import Problem


class Inadmissible(ValueError):
    """The batch contradicts itself."""


def admit(problem: Problem) -> None:
    """Raises Inadmissible, in words: what was seen, and what it needs to be."""
    if problem.last_page_len > problem.page_size:
        raise Inadmissible(
            f"last_page_len={problem.last_page_len}, needs at most page_size={problem.page_size}: "
            "the tokens past it would be read from a page that is not the request's"
        )
    if problem.q_heads % problem.kv_heads:
        raise Inadmissible(f"kv_heads={problem.kv_heads}, needs a divisor of q_heads={problem.q_heads}")
