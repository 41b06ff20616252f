//! Figures of the operating system about tasks, control groups and the host. Each of its texts has one file with a pure
//! `parse(&str)`; [`file::ProcFile`] is the one thin reader under all.

pub mod block;
pub mod cgroup_rows;
pub mod cpu_stat;
pub mod device_rows;
pub mod file;
pub mod freezers;
pub mod groups;
pub mod host;
pub mod host_rows;
pub mod maps;
pub mod membership;
pub mod mountinfo;
pub mod once;
pub mod page_cache;
pub mod parse;
pub mod places;
pub mod psi;
pub mod schedstat;
pub mod stat;
pub mod switches;
pub mod task;
pub mod task_rows;
