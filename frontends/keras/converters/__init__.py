"""One small function per Keras operation, by family."""
