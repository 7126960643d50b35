//! Percent-encoding (RFC 3986). Pure.

/// Decodes `%XX` into bytes. A `%` without two hexadecimal digits stays as it is.
pub(crate) fn decoded_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        let coded = digit(0).zip(digit(1)).filter(|_| *first == b'%');
        match coded.and_then(|(high, low)| u8::try_from(high << 4 | low).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

/// Decodes `%XX` into a text.
///
/// # Errors
/// The bytes are not UTF-8.
pub(crate) fn decoded(text: &str) -> Result<String, &'static str> {
    String::from_utf8(decoded_bytes(text)).map_err(|_| "not valid UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_coded_comes_back(text in ".*") {
            let coded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(decoded(&coded), Ok(text));
        }
    }
}
