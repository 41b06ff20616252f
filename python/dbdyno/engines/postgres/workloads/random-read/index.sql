alter table ${table} add primary key (id)
