"""simsql beside other tools, on one corpus in one run: python -m benchmarks.compare, which prints Markdown."""
