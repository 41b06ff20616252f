\set id random(1, 200000 - 99)
select id, text from dbdyno.micro_rows where id between :id and :id + 99 order by id;
