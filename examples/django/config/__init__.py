"""The project: settings and URLs."""
