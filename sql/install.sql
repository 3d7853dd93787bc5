-- The files that simsql installs, in order of their dependencies. `simsql install --sql` prints them as one script. An
-- upgrade runs all but the first two again: they use CREATE OR REPLACE.

\ir search_path.sql
\ir schema.sql
\ir version.sql
\ir fingerprints.sql
\ir layout.sql
\ir scope.sql
\ir guard.sql
\ir citus.sql
\ir btrees.sql
\ir look_up.sql
\ir search.sql
\ir skew.sql
\ir near.sql
\ir triggers.sql
\ir indexable.sql
\ir advice.sql
\ir indexes.sql
\ir vacuum.sql
\ir build.sql
\ir verify.sql
\ir repair.sql
\ir change_storage.sql
\ir join_designs.sql
\ir pairs.sql
\ir near_many.sql
\ir claim.sql
\ir clusters.sql
\ir load.sql
\ir backfill.sql
\ir clear_on_change.sql
\ir characters.sql
\ir similarity.sql
\ir uninstall.sql
\ir pin_search_path.sql
