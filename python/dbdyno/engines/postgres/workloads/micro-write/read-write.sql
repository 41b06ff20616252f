\set id1 random(1, 50000)
\set id2 random(1, 50000)
\set id3 random(1, 50000)
\set id4 random(1, 50000)
\set first random(1, 50000 - 99)
\set code random(1, 1000000)
begin;
select text from dbdyno.micro_accounts where id = :id1;
select text from dbdyno.micro_accounts where id = :id2;
select text from dbdyno.micro_accounts where id = :id3;
select sum(amount) from dbdyno.micro_accounts where id between :first and :first + 99;
update dbdyno.micro_accounts set code = :code where id = :id1;
update dbdyno.micro_accounts set amount = amount + 1 where id = :id2;
delete from dbdyno.micro_accounts where id = :id4;
insert into dbdyno.micro_accounts (id, code, amount, text)
values (:id4, :code, 0, 'forty-eight characters of text in each row, as is') on conflict (id) do nothing;
insert into dbdyno.micro_log (account_id, text) values (:id3, 'forty-eight characters of text in each row, as is');
commit;
