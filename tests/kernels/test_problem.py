"""What a problem derives: lengths per request, sizes."""

from kernel_problems import BASE, but


def test_even_requests_are_all_of_the_longest_length() -> None:
    problem = but(BASE, batch=3, q_len=2, kv_len=10)
    assert (problem.q_lens, problem.kv_lens, problem.tokens) == ((2, 2, 2), (10, 10, 10), 6)


def test_skewed_requests_get_shorter_and_bring_no_more_queries_than_they_have_tokens() -> None:
    problem = but(BASE, batch=4, q_len=6, kv_len=10, skew=True)
    assert problem.kv_lens == (10, 7, 5, 2)
    assert problem.q_lens == (6, 6, 5, 2)


def test_a_skewed_request_has_a_token_however_short() -> None:
    assert but(BASE, batch=4, kv_len=2, skew=True).kv_lens == (2, 1, 1, 1)


def test_mixed_brings_chunks_in_the_first_half_and_single_tokens_in_the_second() -> None:
    assert but(BASE, phase="mixed", batch=5, q_len=7, kv_len=9).q_lens == (7, 7, 1, 1, 1)
    assert but(BASE, phase="mixed", batch=1, q_len=7, kv_len=9).q_lens == (7,)


def test_sizes() -> None:
    problem = but(BASE, q_heads=28, kv_heads=4, head_dim=128)
    assert (problem.group, problem.hidden, problem.intermediate) == (7, 3584, 7168)
