"""The lightweight sentence encoder: two layers that predict words from a sentence's vector (Mao et al., ACL 2021)."""
