//! Base64 with padding (RFC 4648). Pure.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            match at <= group.len() {
                true => text.push(char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

/// Decodes a text. Returns `None` if it is not Base64.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let digits = text
        .strip_suffix(b"==")
        .or(text.strip_suffix(b"="))
        .unwrap_or(text);
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits {
        let value = DIGITS.iter().position(|known| known == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn base64_comes_back(bytes: Vec<u8>, text in ".*") {
            prop_assert_eq!(decoded(&encoded(&bytes)), Some(bytes));
            let _ = decoded(&text);
        }
    }
}
