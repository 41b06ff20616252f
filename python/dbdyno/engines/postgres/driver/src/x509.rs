//! The little that libpq reads of a certificate and webpki does not (RFC 5280, 4.1): the common name, the
//! dates of one that is a root itself, and the hash that SCRAM binds to.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const RSA_PSS: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a";
const HASH_SHA1: &[u8] = b"\x2b\x0e\x03\x02\x1a";
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// OID 2.5.29.17 with tag and length.
const ALTERNATIVE_NAMES: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];

/// Tag, content, rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        (digits.iter().fold(0, |n, &d| n << 8 | usize::from(d)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

/// Returns a field of the signed part: serial number, signature, issuer, validity, subject, ...
fn field(certificate: &[u8], index: usize) -> Option<&[u8]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, to_be_signed, _) = element(certificate)?;
    let mut fields = elements(to_be_signed).filter(|&(tag, _)| tag != VERSION);
    Some(fields.nth(index)?.1)
}

/// Returns the algorithm with its parameters, and the key itself (`SubjectPublicKeyInfo`).
pub fn public_key(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = elements(field(certificate, 5)?);
    let (_, kind) = parts.next()?;
    let (&unused_bits, key) = parts.next()?.1.split_first()?;
    (unused_bits == 0).then_some((kind, key))
}

/// Beginning and end of a certificate's validity, in seconds since 1970.
pub fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let mut dates = elements(field(certificate, 3)?);
    let mut date = || dates.next().and_then(|(tag, text)| seconds(tag, text));
    Some((date()?, date()?))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` (RFC 5280, 4.1.2.5).
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let (year_digits, digits) = match tag {
        UTC_TIME => (2, 12),
        GENERALIZED_TIME => (4, 14),
        _ => return None,
    };
    let text = text.strip_suffix(b"Z")?;
    if text.len() != digits || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
    let (year, rest) = text.split_at(year_digits);
    let mut parts = rest.chunks(2).map(number);
    let mut part = || parts.next();
    let year = match (number(year), year_digits) {
        (year, 2) if year < 50 => 2000 + year,
        (year, 2) => 1900 + year,
        (year, _) => year,
    };
    let days = days(year, part()?, part()?)?;
    Some(((days * 24 + part()?) * 60 + part()?) * 60 + part()?)
}

/// Days from 1970-01-01 in the Gregorian calendar: years begin in March, so that a leap day is the last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month < 3 { year - 1 } else { year };
    let before = 153 * ((month + 9) % 12) + 2;
    Some(
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + before / 5 + day
            - 719_469,
    )
}

/// `tls-server-end-point` (RFC 5929, 4.1): the certificate under the hash of its own signature, SHA-256 for MD5
/// and SHA-1; `None` where the signature has no such hash (Ed25519) or one that we do not know.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, inner, _) = element(certificate)?;
    let (tag, algorithm) = elements(inner).nth(1)?;
    let mut parts = elements(algorithm);
    let (OBJECT, oid) = parts.next().filter(|_| tag == SEQUENCE)? else {
        return None;
    };
    let hash = if oid == RSA_PSS {
        // Parameters: hash [0], which is SHA-1 where it is left out.
        let given = parts.next().and_then(|(_, p)| elements(p).find(|e| e.0 == 0xa0));
        let named = given.map(|(_, hash)| elements(hash).next().and_then(|e| elements(e.1).next()));
        named.map_or(Some(HASH_SHA1), |hash| Some(hash?.1))?
    } else {
        oid
    };
    let known = HASHES.iter().find(|(oids, _)| oids.contains(&hash))?;
    Some((known.1)(certificate))
}

type Hash = fn(&[u8]) -> Vec<u8>;

/// OIDs of signatures and of hashes, by the hash that RFC 5929 has for them.
const HASHES: [(&[&[u8]], Hash); 4] = [
    (
        &[
            b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", // md5WithRSAEncryption
            b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", // sha1WithRSAEncryption
            b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", // sha256WithRSAEncryption
            b"\x2a\x86\x48\xce\x3d\x04\x01",         // ecdsa-with-SHA1
            b"\x2a\x86\x48\xce\x3d\x04\x03\x02",     // ecdsa-with-SHA256
            HASH_SHA1,
            b"\x60\x86\x48\x01\x65\x03\x04\x02\x01", // SHA-256
        ],
        |der| Sha256::digest(der).to_vec(),
    ),
    (
        &[
            b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", // sha384WithRSAEncryption
            b"\x2a\x86\x48\xce\x3d\x04\x03\x03",     // ecdsa-with-SHA384
            b"\x60\x86\x48\x01\x65\x03\x04\x02\x02", // SHA-384
        ],
        |der| Sha384::digest(der).to_vec(),
    ),
    (
        &[
            b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", // sha512WithRSAEncryption
            b"\x2a\x86\x48\xce\x3d\x04\x03\x04",     // ecdsa-with-SHA512
            b"\x60\x86\x48\x01\x65\x03\x04\x02\x03", // SHA-512
        ],
        |der| Sha512::digest(der).to_vec(),
    ),
    (
        &[
            b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0e", // sha224WithRSAEncryption
            b"\x2a\x86\x48\xce\x3d\x04\x03\x01",     // ecdsa-with-SHA224
            b"\x60\x86\x48\x01\x65\x03\x04\x02\x04", // SHA-224
        ],
        |der| Sha224::digest(der).to_vec(),
    ),
];

/// The subject's first common name.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let subject = field(certificate, 4)?;
    let attributes = elements(subject)
        .filter(|e| e.0 == SET)
        .flat_map(|e| elements(e.1));
    attributes.filter(|e| e.0 == SEQUENCE).find_map(|(_, attribute)| {
        let mut parts = elements(attribute);
        let is_common_name = parts.next()?.1 == COMMON_NAME;
        let value = parts.next()?.1;
        is_common_name.then(|| String::from_utf8_lossy(value).into_owned())
    })
}

/// True if the certificate has the extension `subjectAltName`.
pub fn has_alternative_names(certificate: &[u8]) -> bool {
    certificate
        .windows(ALTERNATIVE_NAMES.len())
        .any(|w| w == ALTERNATIVE_NAMES)
}

/// Equal without regard to case, or a wildcard for exactly the first label.
pub fn matches_host(pattern: &str, host: &str) -> bool {
    let wild = pattern.strip_prefix("*.").zip(host.split_once('.'));
    pattern.eq_ignore_ascii_case(host) || wild.is_some_and(|(p, (_, domain))| p.eq_ignore_ascii_case(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_one_label() {
        assert!(matches_host("DB.example.org", "db.example.org"));
        assert!(matches_host("*.example.org", "db.example.org"));
        assert!(!matches_host("*.example.org", "a.db.example.org"));
        assert!(!matches_host("*.example.org", "example.org"));
        assert!(!matches_host("", "db"));
    }

    #[test]
    fn cut_off_certificates_have_no_name() {
        for n in 0..8 {
            assert_eq!(
                common_name(&[0x30, 0x82, 0x01, 0x00, 0x30, 0x80, 0xff, 0xff][..n]),
                None
            );
        }
    }
}
