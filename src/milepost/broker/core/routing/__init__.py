"""Which connections get which rows of a batch."""
