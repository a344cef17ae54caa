"""What all commands share: whole files, records of text, fingerprints, devices and the command line."""
