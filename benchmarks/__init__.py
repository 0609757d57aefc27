"""One module per benchmark; `python -m benchmarks NAME` runs one, prints a table and ends with one line of JSON."""
