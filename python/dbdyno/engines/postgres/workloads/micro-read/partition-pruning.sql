\set id random(1, 64000)
select amount from dbdyno.micro_parts where id = :id;
