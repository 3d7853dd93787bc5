"""Where the documents and decisions of a run are, in memory or in a table: take in, read, decide, list."""
