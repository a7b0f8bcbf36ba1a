"""What NVML says of a GPU's clocks around a measurement. "Not readable" is said, never taken for "all is well"."""

from dataclasses import dataclass, field

from kaudit_probes.doctor import card
from kaudit_probes.doctor.nvml import SLOWS
from kaudit_probes.failures import named


@dataclass
class Clocks:
    """Readings so far: MHz, and the reasons that hold the GPU back. `unread`: why one was not to be had."""

    sm_mhz: list[int] = field(default_factory=list)
    memory_mhz: list[int] = field(default_factory=list)
    held_back: set[str] = field(default_factory=set)
    unread: str = ""

    def read(self) -> None:
        """Add a reading. Takes well under a millisecond of the host's time, and none of the GPU's."""
        try:
            reasons, sm, _, _ = card.clocks()
            memory = card.memory_clock()
        except Exception as error:  # NVML is absent, forbids it, or does not know the GPU: it costs the clocks alone
            self.unread = named(error)
            return
        self.sm_mhz.append(sm)
        self.memory_mhz.append(memory)
        self.held_back |= {text for bit, text in SLOWS.items() if reasons & bit}
