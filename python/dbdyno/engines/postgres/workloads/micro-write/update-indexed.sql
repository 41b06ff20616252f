\set id random(1, 50000)
\set code random(1, 1000000)
update dbdyno.micro_accounts set code = :code where id = :id;
