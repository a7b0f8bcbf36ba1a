"""The probe: the process that runs an engine's cells under the profiler and says which kernels it saw."""
