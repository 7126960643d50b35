use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn packed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], body].concat()
}

const READY: &[u8] = b"Z\0\0\0\x05I";

/// Runs `run` against a server that sends only these bytes. Also returns the bytes sent to it.
fn with<T>(
    answers: Vec<Vec<u8>>,
    run: impl FnOnce(&mut Exchange<'_>) -> Result<T, QueryError>,
) -> (Result<T, QueryError>, Vec<u8>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&answers.concat()).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let mut wire = Transport::from_stream(ours, "it");
    let done = run(&mut wire.begin_exchange(Deadline::new(PATIENCE)));
    drop(wire);
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).unwrap();
    (done, sent)
}

fn logged_in(answers: &[&[u8]]) -> (Result<(), QueryError>, Vec<u8>) {
    let address = PostgresAddress::parse("host=h user=me password=secret dbname=shop").unwrap();
    let answers = answers.iter().map(|answer| answer.to_vec()).collect();
    with(answers, |wire| log_in(wire, &address))
}

#[test]
fn logins() {
    let known = [
        packed(b'R', &[0, 0, 0, 0]),
        packed(b'S', b"a\0b\0"),
        READY.to_vec(),
    ]
    .concat();
    let (done, sent) = logged_in(&[&known]);
    assert_eq!(done, Ok(()));
    let said = String::from_utf8_lossy(&sent);
    assert!(said.contains("user\0me\0") && said.contains("database\0shop\0"));
    assert!(!said.contains("secret"));
    // Documented by PostgreSQL as md5(md5(password user) salt).
    let (done, sent) = logged_in(&[&packed(b'R', b"\0\0\0\x05salt"), &known]);
    assert_eq!(done, Ok(()));
    assert!(sent.ends_with(b"md541c83370953958037c7298c50b238bda\0"));
    let refusal = packed(b'E', b"SFATAL\0C28P01\0Mpassword authentication failed\0\0");
    let (done, _) = logged_in(&[&refusal]);
    assert_eq!(done.unwrap_err().what, "password authentication failed");
    for bad in [
        packed(b'R', b"\0\0\0\x07"),
        packed(b'R', b"\0\0\0\x0aSCRAM-SHA-1\0\0"),
        packed(b'R', b"\0\0\0\x0br=a,s=AAAA,i=1"),
        packed(b'R', b"\0\0\0\x0cv=AAAA"),
        packed(b'R', b"\0"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"E\0\0\0\0".to_vec(),
    ] {
        assert!(logged_in(&[&bad]).0.is_err(), "{bad:?}");
    }
}

/// A server that starts a login and then reports success has not proven that it knows the password.
#[test]
fn a_server_that_proves_nothing() {
    let begin = packed(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let well = [packed(b'R', &[0, 0, 0, 0]), READY.to_vec()].concat();
    assert!(logged_in(&[&begin, &well]).0.is_err());
}

#[test]
fn the_first_value() {
    let asked =
        |answer: Vec<Vec<u8>>| with(vec![answer.concat()], |wire| first(wire, "SELECT 1")).0;
    let row = |value: &[u8]| packed(b'D', &[b"\0\x01\0\0\0\x02".as_slice(), value].concat());
    let ready = || READY.to_vec();
    let two = vec![
        packed(b'T', b"\0\0"),
        row(b"42"),
        row(b"43"),
        packed(b'C', b"SELECT 2\0"),
        ready(),
    ];
    assert_eq!(asked(two), Ok(Ok(Some("42".into()))));
    assert_eq!(
        asked(vec![packed(b'D', b"\0\x01\xff\xff\xff\xff"), ready()]),
        Ok(Ok(None))
    );
    assert_eq!(asked(vec![packed(b'C', b"SET\0"), ready()]), Ok(Ok(None)));
    let refused = asked(vec![packed(b'E', b"Mno\0\0"), ready()]).unwrap();
    assert_eq!(refused.unwrap_err().what, "no");
    assert!(asked(vec![row(b"4")]).is_err());
    assert!(asked(vec![packed(b'G', b"")]).is_err());
}

proptest! {
    #[test]
    fn nothing_panics(bytes: Vec<u8>, kind: u8) {
        let _ = value(&bytes);
        let _ = refused(&bytes);
        let _ = logged_in(&[&bytes]);
        let _ = logged_in(&[&packed(b'R', &bytes), &packed(kind, &bytes)]);
        let _ = with(vec![bytes], |wire| first(wire, "x"));
    }
}
