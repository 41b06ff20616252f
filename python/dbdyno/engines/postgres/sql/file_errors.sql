-- Errors for which the configuration files are not applied: lines that cannot be parsed, and unknown names.
select pg_catalog.format('%s, line %s: %s', f.sourcefile, f.sourceline, f.error)
from pg_catalog.pg_file_settings as f
where f.error is not null
  and (f.name is null or (f.name not like '%.%' and not exists (
        select from pg_catalog.pg_settings as s where lower(s.name) = lower(f.name))))
