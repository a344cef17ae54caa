"""Data sets that only other papers' tables have. A recipe names a module as `format`; the module says how the files are
to lie, and turns them into the project's own format."""
