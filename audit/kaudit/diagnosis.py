"""What a check of `kaudit doctor` comes to, and how the process that checks says so.

`found` is what was seen, `do` what mends it. "Could not tell" is a finding of its own: it is never "ok".
"""

from msgspec import Struct

TRIAL = "trial"
"""The check that is evidence: known launches are recorded and counted. All others are hints."""


class Ok(Struct, frozen=True, tag="ok"):
    found: str


class Warn(Struct, frozen=True, tag="warning"):
    """What has made captures or times untrue elsewhere. Whether captures are whole here, the trial says."""

    found: str
    do: str


class Fault(Struct, frozen=True, tag="fault"):
    """kaudit cannot work until this is mended."""

    found: str
    do: str


class NotApplicable(Struct, frozen=True, tag="not applicable"):
    found: str


class CouldNotTell(Struct, frozen=True, tag="could not tell"):
    found: str
    do: str


Finding = Ok | Warn | Fault | NotApplicable | CouldNotTell


class Checking(Struct, frozen=True, tag="checking"):
    """Said before a check runs: if the process dies in it, that is what it died of."""

    name: str


class Checked(Struct, frozen=True, tag="checked"):
    name: str
    finding: Finding


FromDoctor = Checking | Checked
