\set id random(1, 50000 - 4)
begin;
savepoint a;
update dbdyno.micro_accounts set amount = amount + 1 where id = :id;
savepoint b;
update dbdyno.micro_accounts set amount = amount + 1 where id = :id + 1;
rollback to savepoint b;
savepoint c;
update dbdyno.micro_accounts set amount = amount + 1 where id = :id + 2;
release savepoint c;
savepoint d;
update dbdyno.micro_accounts set amount = amount + 1 where id = :id + 3;
release savepoint a;
commit;
