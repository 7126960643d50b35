use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn addresses() {
    let parsed = |text: &str| match MysqlAddress::parse(text) {
        Ok(address) => address,
        Err(why) => panic!("{text}: {why}"),
    };
    let address = parsed("mysql://me:s%40e:c@ret@db:3307/shop?stmt_cache_size=1");
    assert_eq!(address.place().to_string(), "db:3307");
    assert_eq!(address.user, "me");
    assert_eq!(address.password.as_deref(), Some("s@e:c@ret"));
    assert_eq!(address.database.as_deref(), Some("shop"));
    assert_eq!(parsed("root@[::1]").place().to_string(), "[::1]:3306");
    assert_eq!(parsed("//h").host, "h");
    assert_eq!(
        parsed("/run/a%b.sock").socket.as_deref(),
        Some("/run/a%b.sock")
    );
    let socket = parsed("mysql://root@localhost/?socket=/run/a%20b.sock&db_name=x");
    assert_eq!(socket.place(), Endpoint::Unix("/run/a b.sock".into()));
    assert_eq!(socket.database.as_deref(), Some("x"));
    for bad in [
        "",
        "mysql://",
        "mysql://[bad",
        "http://h",
        "h:x",
        "h?ssl=1",
        "u@",
    ] {
        assert!(MysqlAddress::parse(bad).is_err(), "{bad}");
    }
}

/// Checks proofs as a server does, with the hash that it stores.
#[test]
fn proofs_are_what_a_server_expects() {
    let salt = b"01234567890123456789";
    let sent = proof(b"mysql_native_password", "secret", salt).unwrap();
    let kept = Sha1::digest(Sha1::digest("secret"));
    let once = xor(&sent, &Sha1::digest([salt.as_slice(), &kept].concat()));
    assert_eq!(Sha1::digest(once), kept);
    let sent = proof(b"caching_sha2_password", "secret", salt).unwrap();
    let kept = Sha256::digest(Sha256::digest("secret"));
    let once = xor(&sent, &Sha256::digest([&kept, salt.as_slice()].concat()));
    assert_eq!(Sha256::digest(once), kept);
    assert!(
        proof(b"mysql_native_password", "", salt)
            .unwrap()
            .is_empty()
    );
    let refused = proof(b"mysql_clear_password", "secret", salt).unwrap_err();
    assert!(refused.what.contains("mysql_clear_password"));
}

fn packed(number: u8, body: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&[a, b, c, number], body].concat()
}

fn greeted(plugin: &str) -> Vec<u8> {
    let body = [
        b"\x0a8.0\0....01234567\0".as_slice(),
        &[0; 18],
        b"890123456789\0",
    ]
    .concat();
    packed(0, &[&body, plugin.as_bytes(), b"\0"].concat())
}

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

#[test]
fn a_password_is_sent_over_a_socket_alone() {
    let answers = || {
        vec![
            greeted("caching_sha2_password"),
            packed(2, &[MORE, 4]),
            packed(4, &[OK]),
        ]
    };
    let mut address = MysqlAddress::parse("me:se%41cret@h").unwrap();
    let (done, sent) = with(answers(), |wire| log_in(wire, &address));
    assert!(done.unwrap_err().what.contains("without TLS"));
    assert!(!String::from_utf8_lossy(&sent).contains("seAcret"));
    address.socket = Some("/run/m.sock".into());
    let (done, sent) = with(answers(), |wire| log_in(wire, &address));
    assert_eq!(done, Ok(()));
    assert!(sent.ends_with(&packed(3, b"seAcret\0")));
}

#[test]
fn another_plugin_and_a_refusal() {
    let address = MysqlAddress::parse("me:secret@h/shop").unwrap();
    let switch = [b"\xfemysql_native_password\0abcdefghijabcdefghij\0".as_slice()].concat();
    let answers = vec![
        greeted("caching_sha2_password"),
        packed(2, &switch),
        packed(4, &[OK]),
    ];
    let (done, sent) = with(answers, |wire| log_in(wire, &address));
    assert_eq!(done, Ok(()));
    let proof = proof(b"mysql_native_password", "secret", b"abcdefghijabcdefghij").unwrap();
    assert!(sent.ends_with(&packed(3, &proof)));
    let denied = packed(2, b"\xff\x15\x04#28000Access denied");
    let answers = vec![greeted("mysql_native_password"), denied];
    let (done, _) = with(answers, |wire| log_in(wire, &address));
    assert_eq!(done.unwrap_err().what, "ERROR 1045 (28000): Access denied");
}

#[test]
fn rows_of_texts() {
    let end = packed(4, b"\xfe\0\0\0\0");
    let table = [
        packed(1, &[2]),
        packed(2, b"column"),
        packed(3, b"column"),
        end.clone(),
        packed(5, b"\x01a\x0242"),
        packed(6, b"\x01b\xfb"),
        end,
    ];
    let asked = |answer: Vec<u8>| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&answer).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let wire = Some(Transport::from_stream(ours, "it"));
        let mut connection = MysqlConnection { wire };
        let answer = connection.query("SHOW STATUS", Deadline::new(PATIENCE));
        (answer, connection.wire.is_some())
    };
    let rows = vec![
        vec!["a".to_owned(), "42".to_owned()],
        vec!["b".to_owned(), String::new()],
    ];
    assert_eq!(asked(table.concat()), (Ok(rows), true));
    assert_eq!(asked(packed(1, &[OK, 0, 0])), (Ok(vec![]), true));
    let (refused, is_usable) = asked(packed(1, b"\xff\x15\x04#42000no"));
    assert_eq!(
        (refused.unwrap_err().what.as_str(), is_usable),
        ("ERROR 1045 (42000): no", true)
    );
    // A file is never sent, even if the server requests it.
    for bad in [
        packed(1, b"\xfb/etc/passwd"),
        packed(1, &[0xfe; 9]),
        vec![1, 0],
    ] {
        let (answer, is_usable) = asked(bad);
        assert!(answer.is_err() && !is_usable);
    }
}

proptest! {
    #[test]
    fn nothing_panics(bytes: Vec<u8>, text in ".*", scheme in "(mysql://|/|)") {
        let _ = MysqlAddress::parse(&format!("{scheme}{text}"));
        let _ = greeting(&bytes);
        let _ = refused(&bytes);
        let _ = PacketCursor(&bytes).counted();
        let _ = proof(&bytes, &text, &bytes);
        let answers = vec![greeted("mysql_native_password"), bytes.clone()];
        let _ = with(answers, |wire| log_in(wire, &MysqlAddress::default()));
        let _ = with(vec![bytes], |wire| rows(wire, "x"));
    }
}
