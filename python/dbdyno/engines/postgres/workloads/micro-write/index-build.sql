-- In one transaction, so that no index is left behind.
begin;
create index micro_accounts_text on dbdyno.micro_accounts (text);
drop index dbdyno.micro_accounts_text;
commit;
