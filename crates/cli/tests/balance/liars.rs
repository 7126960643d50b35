//! Fake databases with impossible answers, which must neither end a client nor fill its memory.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::common::{run, stderr, stdout};

/// No client reads this much; the fake server stops here anyway.
const ENOUGH: usize = 2 << 30;

/// Serves each connection in a separate thread.
fn serve(path: &Path, lie: fn(UnixStream) -> std::io::Result<()>) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || lie(stream));
        }
    });
}

fn hear(stream: &mut UnixStream) -> std::io::Result<()> {
    let mut heard = [0; 4096];
    match stream.read(&mut heard)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Builds a packet of MySQL's protocol: three bytes of length, its number, its payload.
fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], payload].concat()
}

/// Answers the first query by announcing eight thousand million columns.
fn columns(mut stream: UnixStream) -> std::io::Result<()> {
    let mut hello = b"\x0a10.11.6\0\x01\0\0\0abcdefgh\0".to_vec();
    // Capabilities (no encryption, no compression), character set, state, and length of the scramble.
    hello.extend([0xdf, 0xf7, 33, 2, 0, 0x08, 0, 21]);
    hello.extend([0; 10]);
    hello.extend(b"ijklmnopqrst\0mysql_native_password\0");
    stream.write_all(&packet(0, &hello))?;
    hear(&mut stream)?;
    stream.write_all(&packet(2, &[0, 0, 0, 2, 0, 0, 0]))?;
    hear(&mut stream)?;
    let mut count = vec![0xfe];
    count.extend((8_u64 << 30).to_le_bytes());
    stream.write_all(&packet(1, &count))?;
    hear(&mut stream)
}

/// Builds a message of PostgreSQL's protocol: its kind, length and payload.
fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], payload].concat()
}

/// Answers the first query with rows without end.
fn rows(mut stream: UnixStream) -> std::io::Result<()> {
    hear(&mut stream)?;
    stream.write_all(&message(b'R', &[0, 0, 0, 0]))?;
    stream.write_all(&message(b'Z', b"I"))?;
    hear(&mut stream)?;
    let text = [0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    let column = [&[0, 1][..], b"size\0", &[0, 0, 0, 0, 0, 0], &text].concat();
    stream.write_all(&message(b'T', &column))?;
    let value = vec![b'1'; 1 << 20];
    let length = u32::try_from(value.len()).unwrap().to_be_bytes();
    let row = message(b'D', &[&[0, 1], &length[..], &value].concat());
    for _ in 0..ENOUGH / value.len() {
        stream.write_all(&row)?;
    }
    Ok(())
}

#[test]
fn databases_that_lie_end_and_fill_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mariadb = folder.path().join("mariadb.sock");
    serve(&mariadb, columns);
    serve(&folder.path().join(".s.PGSQL.5432"), rows);
    let config = folder.path().join("guard.toml");
    let rules = format!(
        "schema = 1\nlisten = 'off'\n[[balance]]\nname = 'liars'\ntarget = '700M'\naction = 'balance'\nevery = '1s'\n\
         [[balance.component]]\nname = 'columns'\nkind = 'mariadb'\naddress = '{}'\nleast = '64M'\nmost = '600M'\n\
         [[balance.component]]\nname = 'rows'\nkind = 'postgresql'\naddress = 'host={} user=a'\nleast = '64M'\nmost = '600M'\n",
        mariadb.display(),
        folder.path().display()
    );
    std::fs::write(&config, rules).unwrap();
    let config = config.display().to_string();
    let output = run(&[
        "balance",
        "--once",
        "--dry-run",
        "--json",
        "--config",
        &config,
    ]);
    // No server was reached.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    for part in said["balance"][0]["components"].as_array().unwrap() {
        assert!(part["size_bytes"].is_null(), "{part:#}");
        let standing = part["standing"].as_str().unwrap();
        let why = match part["name"].as_str().unwrap() {
            "columns" => "not in the MariaDB or MySQL protocol",
            _ => "too long",
        };
        assert!(standing.contains(why), "{part:#}");
    }
}
