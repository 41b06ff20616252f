\set code random(1, 200000)
select amount from dbdyno.micro_rows where code = :code;
