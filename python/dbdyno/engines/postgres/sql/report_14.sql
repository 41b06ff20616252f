-- Makes the server count this session's activity when this statement ends, half a second after its last report.
select from pg_catalog.pg_database limit 1
