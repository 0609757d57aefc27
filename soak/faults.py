"""A disk that fails, or is full, under load. Filled in below."""

FAULTS: dict[str, object] = {}


def run_fault(name: str, seed: int) -> int:
    raise NotImplementedError
