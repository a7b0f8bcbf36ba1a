"""`python -m kaudit`, for where the script is not on the path."""

from kaudit.cli import main

main()
