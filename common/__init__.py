"""Shared by all commands: atomic files, readers of records, fingerprints, device and dtype, and the command line."""
