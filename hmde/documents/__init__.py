"""A person's files and tables, read as documents."""
