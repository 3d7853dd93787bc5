"""The job on files (`job`) and the job on tables (`table_job`): read, store, compare, decide, confirm, write."""
