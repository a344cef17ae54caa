"""The subcommands of `hmde`, one module each, whose `main` gets the options that options.py describes."""
