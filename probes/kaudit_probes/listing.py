"""`python -m kaudit_probes.listing`: the listed engines and what of them is installed here, as JSON lines on stdout."""

import json
from importlib.metadata import PackageNotFoundError, version

from kaudit_probes.engines import ENGINES


def main() -> None:
    for name, listed in ENGINES.items():
        try:
            found = version(listed.package)
        except PackageNotFoundError:
            found = ""
        print(json.dumps({"name": name, "package": listed.package, "version": found, "get": listed.get}))


if __name__ == "__main__":
    main()
