-- The end of a log file, at most ${most} bytes.
select pg_catalog.pg_read_binary_file(${file}, greatest(0, (pg_catalog.pg_stat_file(${file})).size - ${most}), ${most})
