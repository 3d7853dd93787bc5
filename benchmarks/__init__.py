"""Benchmarks: simsql and the systems that people use today, side by side on the same data.

`python -m benchmarks --help`, or `make bench`; see docs/explanation/benchmarks.md.
"""
