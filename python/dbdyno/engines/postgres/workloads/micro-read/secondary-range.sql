\set code random(1, 200000 - 99)
select id, text from dbdyno.micro_rows where code between :code and :code + 99 order by code;
