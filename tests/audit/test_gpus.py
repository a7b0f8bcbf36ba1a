"""Which GPUs a sweep is shared out between: those that the user leaves us, by the names that CUDA knows them by."""

from collections.abc import Callable

import pytest

from kaudit.errors import UserError
from kaudit.gpus import chosen
from kaudit_probes.gpus import names

ALL = ("GPU-aa", "MIG-bb", "GPU-cc")
Listing = Callable[[str], str]
"""Makes a Python that lists GPUs as the script says."""


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("all", ALL), ("0,2", ("GPU-aa", "GPU-cc")), ("1", ("MIG-bb",)), ("GPU-cc, MIG-bb", ("GPU-cc", "MIG-bb"))],
)
def test_gpus_are_chosen_by_number_or_name(python: Listing, wanted: str, expected: tuple[str, ...]) -> None:
    assert chosen(wanted, python("printf '%s\\n' " + " ".join(ALL))) == expected


@pytest.mark.parametrize(
    ("visible", "wanted", "expected"),
    [
        ("3,5,7", "all", ("3", "5", "7")),
        ("3,5,7", "0,2", ("3", "7")),  # as torch would count them
        ("GPU-aa,MIG-bb", "1", ("MIG-bb",)),
        ("GPU-aa,MIG-bb", "MIG-bb", ("MIG-bb",)),
        ("2,-1,3", "all", ("2",)),
    ],
)
def test_what_the_user_hides_stays_hidden(
    monkeypatch: pytest.MonkeyPatch, visible: str, wanted: str, expected: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert chosen(wanted, "/nowhere/python") == expected


@pytest.mark.parametrize(
    ("wanted", "script", "fault"),
    [
        ("3", "echo GPU-aa", '--devices: no GPU "3" here; write all, or some of GPU-aa, 0'),
        ("0,GPU-aa", "echo GPU-aa", "--devices: 0,GPU-aa names a GPU twice"),
        ("", "echo GPU-aa", '--devices: no GPU "" here'),
        ("all", "true", "cannot list the GPUs: there is none; leave out --devices, set CUDA_VISIBLE_DEVICES, or "),
        ("all", "echo GPU-aa; echo Welcome", "cannot list the GPUs: it printed something else; leave out --devices, "),
        (
            "all",
            "echo trace >&2; echo NVML Shared Library Not Found >&2; exit 1",
            "cannot list the GPUs: exit 1: NVML Shared Library Not Found; leave out --devices, ",
        ),
    ],
)
def test_what_is_no_gpu_is_one_line(python: Listing, wanted: str, script: str, fault: str) -> None:
    with pytest.raises(UserError) as raised:
        chosen(wanted, python(script))
    assert fault in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_python_that_is_not_there_and_hidden_gpus_are_one_line(
    python: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"--python .*nowhere: cannot list the GPUs"):
        chosen("all", python("true") + "/nowhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="hides every GPU"):
        chosen("all", "/nowhere/python")


class FakeNvml:
    """Three GPUs: whole, split in two with a gap, and one that cannot be split."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801 (NVML's name)
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801
        pass

    def nvmlInit(self) -> None:  # noqa: N802
        self.modes = {0: 0, 1: 1}

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        return number

    def nvmlDeviceGetMigMode(self, gpu: int) -> tuple[int, int]:  # noqa: N802
        if gpu not in self.modes:
            raise self.NVMLError_NotSupported
        return self.modes[gpu], 0

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: int) -> int:  # noqa: N802
        return {1: 3}[gpu]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: int, place: int) -> str:  # noqa: N802
        if place == 1:
            raise self.NVMLError_NotFound
        return f"{gpu}.{place}"

    def nvmlDeviceGetUUID(self, handle: int | str) -> str:  # noqa: N802
        return f"MIG-{handle}" if isinstance(handle, str) else f"GPU-{handle}"


def test_a_split_gpu_stands_for_its_instances() -> None:
    assert list(names(FakeNvml())) == ["GPU-0", "MIG-1.0", "MIG-1.2", "GPU-2"]
