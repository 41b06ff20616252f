\set id random(1, 50000)
update dbdyno.micro_accounts set amount = amount + 1 where id = :id;
