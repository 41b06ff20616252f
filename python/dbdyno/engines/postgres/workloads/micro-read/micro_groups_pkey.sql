alter table only dbdyno.micro_groups add primary key (group_id)
