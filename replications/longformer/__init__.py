"""mLongformer, the flat baseline of the HMDE paper (section 3.3)."""
