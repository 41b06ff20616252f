select extract(epoch from pg_catalog.pg_postmaster_start_time()) as server_start_s
