"""`python -m milepost.cli` is the same as `milepost`."""

from milepost.cli import main

main()
