-- In one transaction, so that no index is left behind.
begin;
create index micro_accounts_built on dbdyno.micro_accounts (amount, code);
drop index dbdyno.micro_accounts_built;
commit;
