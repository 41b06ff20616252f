-- A tenth of the rows is updated first, so that there is something to remove; the page has the time of each command.
\set n random(0, 9)
update dbdyno.micro_accounts set amount = amount + 1 where id % 10 = :n;
vacuum (parallel 0) dbdyno.micro_accounts;
