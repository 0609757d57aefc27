"""What loads a broker: publishers and subscribers, each in a process of its own, driven by the benchmark."""
