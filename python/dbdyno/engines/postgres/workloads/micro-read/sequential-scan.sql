\set amount random(1, 100000)
select count(*) from dbdyno.micro_rows where amount = :amount;
