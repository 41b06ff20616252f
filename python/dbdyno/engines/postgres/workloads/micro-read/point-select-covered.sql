\set id random(1, 200000)
select id from dbdyno.micro_rows where id = :id;
