\set first random(1, 200000 - 19999)
select text from dbdyno.micro_rows where id between :first and :first + 19999 order by text offset 19999;
