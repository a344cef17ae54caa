"""Other papers' systems, one folder a paper, and the data that they share: Wikipedia, published data sets. They import
the core; nothing of the core imports them."""
