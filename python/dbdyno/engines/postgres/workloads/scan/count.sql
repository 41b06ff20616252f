-- Every block is read; $1, the number of rows, is compared once a call.
select dbdyno_rows.n from (select count(*) as n from ${table}) as dbdyno_rows where $1::bigint >= 0
