"""Authors and their articles."""
