//! Results of calls, counted exactly by one writer each and merged afterwards: tallies, histograms, errors, the log of
//! calls, and counters of the server before and after them.

pub mod call_log;
pub mod errors;
pub mod histogram;
pub mod probe;
pub mod script;
pub mod seconds;
pub mod tally;
