-- Columns of system views that a later version no longer has.
select n.view || '.' || n.name
from unnest(%(views)s::text[], %(names)s::text[]) as n(view, name)
where not exists (
    select from pg_catalog.pg_attribute as a
    where a.attrelid = pg_catalog.to_regclass('pg_catalog.' || n.view) and a.attname = n.name and not a.attisdropped
)
