-- The row is put back, so that there are as many rows for a fast server as for a slow one.
\set id random(1, 50000)
begin;
delete from dbdyno.micro_accounts where id = :id;
insert into dbdyno.micro_accounts (id, code, amount, text)
values (:id, 0, 0, 'forty-eight characters of text in each row, as is') on conflict (id) do nothing;
commit;
