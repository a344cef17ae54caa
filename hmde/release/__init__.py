"""The released model: what of it the package carries, and how it is put together."""
