"""Messaging that can tell you where every message went."""
