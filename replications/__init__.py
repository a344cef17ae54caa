"""Other papers' systems, one folder a paper. They import the core; nothing of the core imports them."""
