alter table only dbdyno.micro_documents add primary key (id)
