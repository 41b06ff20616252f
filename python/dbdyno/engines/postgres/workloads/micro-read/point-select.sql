\set id random(1, 200000)
select text from dbdyno.micro_rows where id = :id;
