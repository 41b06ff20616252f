alter table only dbdyno.micro_accounts add primary key (id)
