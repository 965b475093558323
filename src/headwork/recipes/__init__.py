"""Complete, named configurations, each with the time it takes and the result it gives."""
