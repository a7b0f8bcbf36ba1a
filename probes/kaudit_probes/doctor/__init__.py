"""`kaudit doctor`, in the Python that has the engine: what may keep kaudit from seeing, and a trial whether it does.

Each check is a function of plain facts (a text, a version, a mapping), so that it is tested without the machine that
has the fault. `checks` lists the checks in the order in which they run; `gather` and `card` have the facts.
"""
