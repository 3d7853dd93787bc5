"""Decide which documents to keep: candidates and similarities in, verdicts out; no files, no database."""
