\set first random(1, 200000 - 1999)
select sum(b.amount) from dbdyno.micro_rows as a join dbdyno.micro_rows as b on b.code = a.id
where a.id between :first and :first + 1999;
