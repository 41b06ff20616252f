-- Inside one transaction, the counts of its own that are not yet sent on: exact, nothing to flush.
select coalesce(sum(pg_catalog.pg_stat_get_xact_blocks_fetched(r::oid)), 0)::bigint as lio,
       coalesce(sum(pg_catalog.pg_stat_get_xact_blocks_fetched(r::oid)
                    - pg_catalog.pg_stat_get_xact_blocks_hit(r::oid)), 0)::bigint as blocks_read
from pg_catalog.unnest(pg_catalog.string_to_array(pg_catalog.current_setting('dbdyno.relations'), ',')) as r
