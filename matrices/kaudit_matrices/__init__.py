"""Matrices shipped with kaudit, as YAML: `kaudit sweep smoke` reads smoke.yaml from here."""
