"""Processes of one run: launch, rendezvous, collectives, sharding."""
