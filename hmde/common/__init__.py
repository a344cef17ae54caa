"""Shared by all commands: atomic files, readers of records, fingerprints, device, dtype and threads, and the
command line."""
