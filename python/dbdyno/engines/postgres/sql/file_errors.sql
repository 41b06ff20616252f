-- Why the configuration files are not read to their end.
select pg_catalog.format('%s, line %s: %s', sourcefile, sourceline, error)
from pg_catalog.pg_file_settings
where error is not null and error not like '%restart%'
