-- As read.sql, but ${update} percent of the rows are changed: whole rows a call, rounded up or down at random so that
-- the mean is exact. Which of the parts: spread evenly, from a random one on. Rows are locked in the order of their
-- keys, so sessions that share a table wait for each other and never deadlock. The array keeps the order, and the
-- planner, which takes it for short, at probes of the index.
with share as materialized (
    select floor($1::bigint * ${update} / 100.0 + random())::bigint as changed,
           floor(random() * $1::bigint)::bigint as shift
), part as materialized (
    select n * ${blocks} / $1::bigint as low, (n + 1) * ${blocks} / $1::bigint as high,
           (n + s.shift) * s.changed % $1::bigint >= $1::bigint - s.changed as changes
    from share as s cross join generate_series(0, $1::bigint - 1) as r(n)
), visit as materialized (
    select low + 1 + floor(random() * (high - low))::bigint as id, changes from part
), changed as (
    update ${table} as t set visits = visits + 1
    from unnest(array(select id from visit where changes)) as k(id)
    where t.id = k.id
    returning t.pad
)
select (select count(pad) from changed) + count(t.pad)
from visit as k
cross join lateral (select pad from ${table} where id = k.id offset 0) as t
where not k.changes
