"""Documents in files: formats, encodings, readers, what is skipped, and output files that are written whole."""
