-- As count.sql without an aggregate: the same rows, none of which is sent.
select id from ${table} offset $1::bigint
