"""The migrations of authors and articles."""
