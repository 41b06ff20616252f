-- $1 rows in $1 blocks: the table is cut into $1 parts, and one row of each is taken at random, so none comes
-- twice. OFFSET 0 keeps the probe a probe. count(pad), not count(*): the row itself must be fetched.
select count(t.pad)
from (
    select p.low + 1 + floor(random() * (p.high - p.low))::bigint as id
    from (
        select n * ${blocks} / $1::bigint as low, (n + 1) * ${blocks} / $1::bigint as high
        from generate_series(0, $1::bigint - 1) as r(n)
    ) as p
) as k
cross join lateral (select pad from ${table} where id = k.id offset 0) as t
