"""How the released model was made, beyond training and means of weights: rotated, and packed."""
