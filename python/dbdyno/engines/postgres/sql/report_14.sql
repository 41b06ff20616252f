-- Makes this session's counts reported when it ends, as half a second has passed since it last reported.
select from pg_catalog.pg_database limit 1
