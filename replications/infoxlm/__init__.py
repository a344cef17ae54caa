"""InfoXLM: masked words, masked words of two languages, and cross-lingual contrast (Chi et al., NAACL 2021)."""
