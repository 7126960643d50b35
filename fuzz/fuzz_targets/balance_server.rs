//! Feeds arbitrary answers of a server to the balancer: every call must end.
//! The first byte selects the server kind. The rest is sent on every connection.
#![no_main]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, LazyLock, Mutex};

use hugeleaf_balancer::ConnectOptions;
use hugeleaf_balancer::kind_named;
use hugeleaf_host::Root;
use hugeleaf_units::Bytes;
use libfuzzer_sys::fuzz_target;

const KINDS: [&str; 4] = ["redis", "memcached", "mariadb", "postgresql"];

/// A server that says one thing, and nothing after it.
struct Hostile {
    address: String,
    says: Arc<Mutex<Vec<u8>>>,
    _folder: tempfile::TempDir,
}

static HOSTILE: LazyLock<Hostile> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // PostgreSQL's clients are given the folder, and look for this name in it.
    let path = folder.path().join(".s.PGSQL.5432");
    let listener = UnixListener::bind(&path).expect("a socket");
    let says = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::clone(&says);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let text = answer.lock().expect("no panic holds it").clone();
            std::thread::spawn(move || serve(stream, &text));
        }
    });
    Hostile {
        address: path.display().to_string(),
        says,
        _folder: folder,
    }
});

/// Says it, hears what was asked, and hangs up: else a client waits for more as long as it may.
fn serve(mut stream: UnixStream, text: &[u8]) {
    let _ = stream.write_all(text);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut heard = [0; 1024];
    while stream.read(&mut heard).is_ok_and(|count| count > 0) {}
}

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else {
        return;
    };
    let name = KINDS[usize::from(*first) % KINDS.len()];
    let kind = kind_named(name).expect("of the table");
    let hostile = &*HOSTILE;
    *hostile.says.lock().expect("no panic holds it") = text.to_vec();
    let address = match name {
        "postgresql" => {
            let folder = hostile.address.rsplit_once('/').expect("a path").0;
            format!("host={folder} user=a")
        }
        _ => hostile.address.clone(),
    };
    let mut server = (kind.open)(&ConnectOptions {
        address,
        root: Root::at("/nonexistent"),
        folder: None,
        set_limit: false,
        below_limit: false,
    });
    let _ = server.observe();
    let _ = server.resize(Bytes::from_mib(64));
    let _ = server.give_back();
});
