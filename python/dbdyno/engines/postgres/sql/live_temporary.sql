-- Temporary files of each database since its counters were reset.
select datname::text as database, temp_files as files, temp_bytes as bytes
from pg_catalog.pg_stat_database
where datname is not null and ${database}
order by temp_bytes desc
limit ${limit}
