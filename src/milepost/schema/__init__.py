"""What a message may contain: the model of types, three notations for it, evolution and the registry."""
