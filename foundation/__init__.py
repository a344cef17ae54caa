"""What every room above stands on: files that are written whole, fingerprints, saved models, the command line."""
