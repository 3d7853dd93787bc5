"""A small service for articles."""
