"""Measure rules on labelled pairs: draw a sample to label, read the labels, and measure."""
