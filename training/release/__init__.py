"""From trained folders to what is released: averaged, rotated, packed."""
