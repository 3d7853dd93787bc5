"""What a job writes: clusters, a drop list, a clean corpus, a report, a table of decisions."""
