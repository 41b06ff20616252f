alter table only ${table} add primary key (id)
