"""The table of documents and decisions: open it, fill it, read it, and write the decisions."""
