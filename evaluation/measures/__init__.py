"""The measures, as modules of the library evaluate: each folder can be uploaded as it is, as a Space of metrics."""
