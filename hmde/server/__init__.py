"""An index over HTTP: schemas (what is asked), guards (what is refused), batching, and the app that answers."""
