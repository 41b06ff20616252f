//! The server's own hash functions, so that a checksum can be had from it in SQL: `hashint8extended`,
//! `hashtextextended` (Bob Jenkins' lookup3, which is in the public domain, with the server's start values).

const START: u32 = 0x9e37_79b9_u32.wrapping_add(3_923_095);

/// Three words that are mixed with each other.
type Words = (u32, u32, u32);

/// `hashint8extended(value, seed)`.
pub fn integer(value: i64, seed: u64) -> u64 {
    let high = (value >> 32) as u32;
    let folded = value as u32 ^ if value >= 0 { high } else { !high };
    let (a, b, c) = start(4, seed);
    joined(finished((a.wrapping_add(folded), b, c)))
}

/// `hashtextextended(value, seed)`, in a deterministic collation.
pub fn text(value: &[u8], seed: u64) -> u64 {
    let mut words = start(value.len() as u32, seed);
    let mut blocks = value.chunks_exact(12);
    for block in &mut blocks {
        words = mixed(added(words, block));
    }
    let rest = blocks.remainder();
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    if rest.len() > 8 {
        // The lowest byte of c is the length's.
        last.copy_within(8..11, 9);
        last[8] = 0;
    }
    joined(finished(added(words, &last)))
}

fn start(length: u32, seed: u64) -> Words {
    let first = START.wrapping_add(length);
    if seed == 0 {
        return (first, first, first);
    }
    let (high, low) = ((seed >> 32) as u32, seed as u32);
    mixed((first.wrapping_add(high), first.wrapping_add(low), first))
}

fn added((a, b, c): Words, block: &[u8]) -> Words {
    let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    (
        a.wrapping_add(word(0)),
        b.wrapping_add(word(4)),
        c.wrapping_add(word(8)),
    )
}

fn mixed((mut a, mut b, mut c): Words) -> Words {
    for (first, second) in [(4, 6), (8, 16), (19, 4)] {
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        // The roles go round.
        (a, b, c) = (c, a, b);
    }
    (a, b, c)
}

fn finished((mut a, mut b, mut c): Words) -> Words {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (a, b, c)
}

fn joined((_, b, c): Words) -> u64 {
    u64::from(b) << 32 | u64::from(c)
}
