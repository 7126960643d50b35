//! SCRAM-SHA-256 (RFC 5802, RFC 7677), client side, without channel binding. Pure, except for the nonce.

use sha2::{Digest, Sha256};

use crate::QueryError;
use crate::base64::{decoded, encoded};

pub(super) const NAME: &str = "SCRAM-SHA-256";
/// The header of a client without channel binding, in plain text and in base64.
const HEADER: &str = "n,,";
const CODED_HEADER: &str = "biws";
/// Maximum number of rounds. More would keep this process busy. PostgreSQL's default is 4096.
const MOST_ROUNDS: u32 = 1 << 20;
const BLOCK: usize = 64;

type Hash = [u8; 32];

pub(super) struct Scram {
    password: Vec<u8>,
    nonce: String,
    /// The expected proof of the server, known after its challenge.
    expected: Option<Hash>,
    is_done: bool,
}

impl Scram {
    pub(super) fn begin(password: &[u8]) -> Result<Scram, QueryError> {
        let mut bytes = [0u8; 18];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        match got {
            Ok(count) if count == bytes.len() => Ok(Scram::with(password, encoded(&bytes))),
            _ => Err(QueryError::new("the kernel returned no random numbers")),
        }
    }

    fn with(password: &[u8], nonce: String) -> Scram {
        Scram {
            password: password.to_vec(),
            nonce,
            expected: None,
            is_done: false,
        }
    }

    /// Returns the client's first message. PostgreSQL takes the user's name from the startup message.
    pub(super) fn first(&self) -> String {
        format!("{HEADER}n=,r={}", self.nonce)
    }

    /// Returns the client's last message, or `None` if the challenge is invalid.
    pub(super) fn answer(&mut self, challenge: &[u8]) -> Option<String> {
        let challenge = std::str::from_utf8(challenge).ok()?;
        let mut parts = challenge.split(',');
        let nonce = parts.next()?.strip_prefix("r=")?;
        let salt = decoded(parts.next()?.strip_prefix("s=")?)?;
        let rounds: u32 = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        // The server must add its own nonce. Otherwise an old login could be replayed.
        let is_new = nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce);
        if !is_new || !(1..=MOST_ROUNDS).contains(&rounds) || self.expected.is_some() {
            return None;
        }
        let salted = salted(&self.password, &salt, rounds);
        let last = format!("c={CODED_HEADER},r={nonce}");
        let all = format!("n=,r={},{challenge},{last}", self.nonce);
        let client = keyed(&salted, &[b"Client Key"]);
        let signature = keyed(&Sha256::digest(client), &[all.as_bytes()]);
        let proof: Vec<u8> = client.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let server = keyed(&salted, &[b"Server Key"]);
        self.expected = Some(keyed(&server, &[all.as_bytes()]));
        Some(format!("{last},p={}", encoded(&proof)))
    }

    /// True if the server proves that it knows the password too.
    pub(super) fn check(&mut self, last: &[u8]) -> bool {
        let proof = std::str::from_utf8(last).ok();
        let proof = proof.and_then(|text| decoded(text.strip_prefix("v=")?.split(',').next()?));
        let expected = self.expected.map(Vec::from);
        self.is_done = expected.is_some() && proof == expected;
        self.is_done
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }
}

/// Computes HMAC-SHA-256 (RFC 2104).
fn keyed(key: &[u8], parts: &[&[u8]]) -> Hash {
    let mut block = [0; BLOCK];
    match key.len() > BLOCK {
        true => block[..32].copy_from_slice(&Sha256::digest(key)),
        false => block[..key.len()].copy_from_slice(key),
    }
    let inner = parts.iter().fold(
        Sha256::new().chain_update(block.map(|b| b ^ 0x36)),
        Digest::chain_update,
    );
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

/// Computes the first block of PBKDF2 with HMAC-SHA-256 (RFC 8018).
fn salted(password: &[u8], salt: &[u8], rounds: u32) -> Hash {
    let mut last = keyed(password, &[salt, &1u32.to_be_bytes()]);
    let mut all = last;
    for _ in 1..rounds {
        last = keyed(password, &[&last]);
        for (sum, byte) in all.iter_mut().zip(last) {
            *sum ^= byte;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677. PostgreSQL takes the user's name from the startup message, so it is empty here, and the
    /// proof differs accordingly.
    #[test]
    fn a_login() {
        let salted = salted(
            b"pencil",
            &decoded("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(),
            4096,
        );
        let all = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let server = keyed(&keyed(&salted, &[b"Server Key"]), &[all.as_bytes()]);
        assert_eq!(
            encoded(&server),
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
        let mut scram = Scram::with(b"pencil", "abc".into());
        assert_eq!(scram.first(), "n,,n=,r=abc");
        assert!(!scram.check(b"v="), "before the challenge");
        let last = scram
            .answer(b"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2")
            .unwrap();
        assert!(last.starts_with("c=biws,r=abcdef,p="), "{last}");
        assert!(!scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!scram.is_done());
        let proof = format!("v={}", encoded(&scram.expected.unwrap()));
        assert!(scram.check(proof.as_bytes()) && scram.is_done());
    }

    #[test]
    fn challenges_that_are_none() {
        for bad in [
            "r=abc,s=AAAA,i=4096",
            "r=xyzabc,s=AAAA,i=4096",
            "r=abcd,s=AAAA,i=0",
            "r=abcd,s=AAAA,i=4000000000",
            "r=abcd,s=A,i=4096",
            "m=1,r=abcd,s=AAAA,i=4096",
            "",
        ] {
            let mut scram = Scram::with(b"x", "abc".into());
            assert_eq!(scram.answer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn known_hashes() {
        // RFC 4231, cases 2 and 6.
        let hex = |hash: Hash| hash.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(keyed(b"Jefe", &[b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(keyed(
                &[0xaa; 131],
                &[b"Test Using Larger Than Block-Size Key - Hash Key First"]
            )),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        assert_eq!(encoded(b"n,,"), CODED_HEADER);
    }
}
