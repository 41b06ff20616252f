//! Properties of any records of a ring. `make fuzz` checks them with bytes that cargo-fuzz finds, the test below with the seeds
//! in `fuzz/seeds` and mutations of them.

use crate::records::{HEADER, Record, Sample, kind, parse};
use crate::ring::walk;

const WORD: usize = size_of::<u64>();

/// The first byte chooses the size of the ring, the next eight where its filled part begins, the rest is what it is filled
/// with. The records are the bytes in order, each is within its bounds, and read again as it is written.
pub fn perf_records(data: &[u8]) {
    let Some((&[size, ref start @ ..], filling)) = data.split_first_chunk::<9>() else {
        return;
    };
    let size = 64_usize << (size % 16);
    let start = u64::from_ne_bytes(*start);
    let words = filling
        .chunks_exact(WORD)
        .map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    let filled = filling.len() / WORD * WORD;
    let mut memory = vec![0; size / WORD];
    for (i, word) in words.enumerate() {
        let at = start.wrapping_add((i * WORD) as u64) % size as u64;
        memory[at as usize / WORD] = word;
    }
    let (mut bytes, mut kinds, mut samples) = (Vec::new(), Vec::new(), 0);
    let mut record = Vec::new();
    let positions = start..start.wrapping_add(filled as u64);
    let word = |at: usize| memory[at / WORD];
    let whole = walk(
        word,
        size,
        positions.clone(),
        &mut record,
        |_| true,
        |record| {
            bytes.extend_from_slice(record);
            kinds.push(record[..4].to_vec());
            check(record);
        },
    );
    let sample = kind::SAMPLE.to_ne_bytes();
    walk(
        word,
        size,
        positions,
        &mut record,
        |kind| kind == kind::SAMPLE,
        |record| {
            assert_eq!(record[..4], sample);
            samples += 1;
        },
    );
    assert_eq!(samples, kinds.iter().filter(|kind| **kind == sample).count());
    if filled > size || !start.is_multiple_of(WORD as u64) {
        assert!(!whole && bytes.is_empty());
        return;
    }
    assert_eq!(bytes, filling[..bytes.len()]);
    let left = &filling[bytes.len()..filled];
    let next = left
        .get(6..8)
        .map(|size| usize::from(u16::from_ne_bytes([size[0], size[1]])));
    let possible = |size: usize| size >= HEADER && size <= left.len() && size.is_multiple_of(WORD);
    assert_eq!(whole, left.is_empty());
    assert!(!next.is_some_and(possible));
}

fn check(bytes: &[u8]) {
    let Some(record) = parse(bytes) else {
        return;
    };
    if let Record::Sample(sample) = &record {
        let chains = sample.kernel_chain.len() + sample.user_chain.len();
        assert!(chains * WORD + sample.stack.len() < bytes.len());
    }
    assert_eq!(parse(&written(&record)), Some(record));
}

/// The record as the kernel would write it.
fn written(record: &Record<'_>) -> Vec<u8> {
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let (kind, misc, mut body) = match record {
        Record::Sample(sample) => (
            kind::SAMPLE,
            if sample.kernel { 1 } else { 2 },
            sample_body(sample),
        ),
        Record::Label(label) => {
            // The length of what follows stands before it, so that the fields lie across words.
            let code = label.code.unwrap_or(u32::MAX);
            let (low, high) = (label.query as u32, (label.query >> 32) as u32);
            (
                kind::SAMPLE,
                1,
                vec![two(20, label.tid), two(code, low), two(high, 0)],
            )
        }
        Record::Lost(count) => (kind::LOST_SAMPLES, 0, vec![*count]),
        Record::Throttled(t_ns) => (kind::THROTTLE, 0, vec![*t_ns]),
        Record::Unthrottled(t_ns) => (kind::UNTHROTTLE, 0, vec![*t_ns]),
        Record::Fork { pid, parent, tid } => (kind::FORK, 0, vec![two(*pid, *parent), two(*tid, 0)]),
        Record::Exit { pid, tid } => (kind::EXIT, 0, vec![two(*pid, 0), two(*tid, 0)]),
        Record::Other => (0, 0, Vec::new()),
    };
    let size = (HEADER + WORD * body.len()) as u32;
    body.insert(0, two(kind, misc | size << 16));
    let mut bytes: Vec<u8> = body.into_iter().flat_map(u64::to_ne_bytes).collect();
    if let Record::Sample(Sample { stack, .. }) = record
        && !stack.is_empty()
    {
        bytes.extend((stack.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(stack);
        bytes.extend((stack.len() as u64).to_ne_bytes());
    } else if matches!(record, Record::Sample(_)) {
        bytes.extend(0_u64.to_ne_bytes());
    }
    bytes
}

/// Fields up to the registers.
fn sample_body(sample: &Sample<'_>) -> Vec<u64> {
    let task = u64::from(sample.pid) | u64::from(sample.tid) << 32;
    let chain = sample.kernel_chain.len() + sample.user_chain.len() + 2;
    let mut body = vec![task, sample.t_ns, u64::from(sample.cpu), chain as u64];
    body.push(-128_i64 as u64);
    body.extend(&sample.kernel_chain);
    body.push(-512_i64 as u64);
    body.extend(&sample.user_chain);
    body.push(u64::from(sample.registers.is_some()));
    body.extend(sample.registers.iter().flatten());
    body
}

#[cfg(test)]
#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[cfg(test)]
mod tests {
    #[test]
    fn perf_records() {
        super::mutations::try_all("perf_records", 3000, super::perf_records);
    }
}
