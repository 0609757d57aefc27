"""Connections: handshake, publishers and their stamps, heartbeats."""
