\set id random(1, 50000)
insert into dbdyno.micro_log (account_id, text) values (:id, 'forty-eight characters of text in each row, as is');
