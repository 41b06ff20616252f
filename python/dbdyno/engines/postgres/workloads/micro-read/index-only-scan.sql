\set code random(1, 200000 - 19999)
select count(*), max(amount) from dbdyno.micro_rows where code between :code and :code + 19999;
