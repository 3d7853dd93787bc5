"""The tables of `simsql dedup-table`: the one whose rows it reads, and the one that it creates."""
