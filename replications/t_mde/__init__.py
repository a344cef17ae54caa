"""T-MDE: a transformer that translates through one vector a sentence (Li 2021, chapter 4)."""
