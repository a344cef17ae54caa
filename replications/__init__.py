"""Other papers' systems, one folder a paper; the data that they share: Wikipedia, published data sets; and how the
released model was made. They import the core; nothing of the core imports them."""
