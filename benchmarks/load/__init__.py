"""Load generators: publishers and subscribers, each in a process of its own, driven by the benchmark."""
