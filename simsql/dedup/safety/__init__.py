"""Prove that a drop is safe: who a document is, whether it is still there, and what must not be dropped."""
