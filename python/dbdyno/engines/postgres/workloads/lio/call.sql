-- $1 ranges of 64 rows in 64 blocks. count(pad), not count(*): the row itself must be fetched.
select count(t.pad)
from generate_series(1, $1::bigint) as r(n)
cross join lateral (
    select pad
    from ${table}
    where id between 1 + (r.n * ${stride}) % ${span} and 64 + (r.n * ${stride}) % ${span}
) as t
