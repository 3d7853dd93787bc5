"""Documents in files: formats, encodings, readers, skipped documents and output files."""
