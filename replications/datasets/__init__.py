"""Data sets that only the tables of papers have, those of the HMDE paper among them. A recipe names a module as
`format`; the module says how the files are to lie, and turns them into the project's own format."""
