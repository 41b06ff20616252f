create table dbdyno.micro_groups (
    group_id integer not null,
    region integer not null,
    name text not null
)
