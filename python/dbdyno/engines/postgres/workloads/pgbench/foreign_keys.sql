alter table only ${schema}.pgbench_tellers add constraint pgbench_tellers_bid_fkey foreign key (bid) references ${schema}.pgbench_branches;
alter table ${only_accounts} ${schema}.pgbench_accounts add constraint pgbench_accounts_bid_fkey foreign key (bid) references ${schema}.pgbench_branches;
alter table only ${schema}.pgbench_history add constraint pgbench_history_bid_fkey foreign key (bid) references ${schema}.pgbench_branches;
alter table only ${schema}.pgbench_history add constraint pgbench_history_tid_fkey foreign key (tid) references ${schema}.pgbench_tellers;
alter table only ${schema}.pgbench_history add constraint pgbench_history_aid_fkey foreign key (aid) references ${schema}.pgbench_accounts
