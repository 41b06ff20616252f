update dbdyno.micro_accounts set amount = amount + 1 where id = 1;
