//! The little that libpq reads of a certificate and webpki does not: the common name (RFC 5280, 4.1).

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
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

/// The subject's first common name.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate, _) = element(certificate)?;
    let (_, to_be_signed, _) = element(certificate)?;
    // version (optional), serial number, signature, issuer, validity, subject
    let subject = elements(to_be_signed)
        .filter(|&(tag, _)| tag != VERSION)
        .nth(4)?
        .1;
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
