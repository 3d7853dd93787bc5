"""What a job reads: files and streams, or the rows of a table."""
