"""Other papers' systems, one folder a paper, with Wikipedia and the published data sets that they are made of and measured
on. They import the core; nothing of the core imports them."""
