-- What ALTER SYSTEM has written; of a name written twice the last counts.
select name, setting from pg_catalog.pg_file_settings
where sourcefile like '%/postgresql.auto.conf' and name is not null
order by seqno
