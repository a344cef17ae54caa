"""Text to a trained HMDE, in four folders that data passes in order: corpus, data, losses, loop."""
