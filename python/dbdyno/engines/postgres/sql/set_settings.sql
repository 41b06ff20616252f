-- All names are qualified, so that the present search_path does not matter.
select pg_catalog.set_config((%(names)s::pg_catalog.text[])[n], (%(values)s::pg_catalog.text[])[n], false)
from pg_catalog.generate_series(1, %(count)s::pg_catalog.int4) as n
