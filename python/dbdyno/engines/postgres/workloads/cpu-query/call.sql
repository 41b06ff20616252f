-- The outermost sets have one row where fewer than four are asked for. Each set is a tuplestore of its own.
select dbdyno.verified(count(*), $1::bigint)
from generate_series(1, case when ${sets} >= 4 then ${rows} else 1 end) as d
cross join generate_series(1, case when ${sets} >= 3 then ${rows} else 1 end) as c
cross join generate_series(1, ${rows}) as b
cross join generate_series(1, ${rows}) as a
