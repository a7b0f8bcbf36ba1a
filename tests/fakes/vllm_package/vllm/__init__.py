"""A stand-in for vLLM 0.33: what kaudit's adapter asks of it, in the shape and with the traps of the real one."""
