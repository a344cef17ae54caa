"""What encoders that translate share: targets in batches, the decoder's interface, the losses, the stage."""
