from kaudit.wording import count


def test_a_thing_is_counted_in_its_own_number() -> None:
    assert [count(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert [count(number, "launch") for number in (0, 1, 2)] == ["0 launches", "1 launch", "2 launches"]
