"""`python -m kaudit_probes.doctor --device auto`: the checks, as JSON lines on stdout, each as soon as it is done."""

import argparse
import os
import sys

import msgspec

from kaudit.diagnosis import Checked, Checking, FromDoctor
from kaudit_probes.doctor.checks import checks, guarded


def main() -> int:
    parser = argparse.ArgumentParser(prog="kaudit_probes.doctor")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), required=True)
    arguments = parser.parse_args()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer, and stands beside what they say on stderr

    def send(message: FromDoctor) -> None:
        replies.write(msgspec.json.encode(message) + b"\n")
        replies.flush()

    for name, check in checks(arguments.device):
        send(Checking(name))
        send(Checked(name, guarded(name, check)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
