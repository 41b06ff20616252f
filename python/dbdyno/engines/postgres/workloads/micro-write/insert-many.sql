\set id random(1, 50000)
insert into dbdyno.micro_log (account_id, text)
select :id, 'forty-eight characters of text in each row, as is' from generate_series(1, 100);
