"""Text to a trained HMDE, in four rooms that data passes in order: corpus, data, objectives, loop."""

from foundation.moved import refuse_old_names

refuse_old_names()
