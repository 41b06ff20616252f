-- The list that the next start will load, as its files have it; asked only by a role that may read them.
select setting
from pg_catalog.pg_show_all_file_settings()
where name = 'shared_preload_libraries' and setting is not null
order by seqno desc
limit 1
