//! Runs the same statements on SQLite's own cache and on this one. Every answer is the same, also while memory moves
//! and transactions exceed the cache. SQLite is configured once per process, so each side has its own process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hugeleaf::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;

/// Environment variable for a child: cache, seed, number of statements, folder.
const CHILD: &str = "HUGELEAF_DIFFERENTIAL";
/// Interval in statements at which a hash of all answers is compared.
const EACH: u64 = 500;
/// Minimum misses of this cache over all seeds: it must be too small for most of them.
static MISSES: AtomicU64 = AtomicU64::new(0);

#[test]
fn every_answer_is_the_same_as_with_sqlites_own_cache() {
    // Ten million in a soak. Not more per seed: its databases grow, and statements become slow.
    let (seeds, statements) =
        hugeleaf_testkit::size_or_soak((2, 4_000), (4, 4_000), (1_000, 10_000));
    for seed in 0..seeds {
        let answers = std::thread::scope(|scope| {
            let sides =
                ["own", "ours"].map(|cache| scope.spawn(move || child(cache, seed, statements)));
            sides.map(|side| side.join().unwrap())
        });
        let [own, ours] = &answers;
        assert_eq!(own.len() as u64, statements / EACH, "{own:?}");
        for (at, (own, ours)) in own.iter().zip(ours).enumerate() {
            assert_eq!(
                own,
                ours,
                "seed {seed}, statements up to {}",
                (at as u64 + 1) * EACH
            );
        }
        assert_eq!(own.len(), ours.len());
    }
    let misses = MISSES.load(Ordering::Relaxed);
    assert!(
        misses > 100 * seeds,
        "the cache was too large: {misses} misses"
    );
}

fn child(cache: &str, seed: u64, statements: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let what = format!("{cache} {seed} {statements} {}", folder.path().display());
    let output = crate::support::child("differential", CHILD, &what)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{cache} {seed}: {text} {errors}");
    let misses = text.lines().find_map(|line| line.strip_prefix("misses "));
    let misses: u64 = misses.map_or(0, |misses| misses.parse().unwrap());
    MISSES.fetch_add(misses, Ordering::Relaxed);
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("answers "));
    lines.map(str::to_owned).collect()
}

#[test]
fn child_of_the_other_test() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let what: Vec<&str> = what.splitn(4, ' ').collect();
    let [cache, seed, statements, folder] = what[..] else {
        panic!("{what:?}");
    };
    // Much less than the size that the databases reach.
    let installed = (cache == "ours").then(|| crate::support::cache(Bytes::from_mib(8)));
    let moves = |n: u64| {
        if let Some(installed) = &installed {
            let target = Bytes::from_mib(4 + n % 5);
            installed.set_target(target).unwrap().unwrap();
        }
    };
    run(
        seed.parse().unwrap(),
        statements.parse().unwrap(),
        Path::new(folder),
        moves,
    );
    if let Some(installed) = installed {
        let shares = installed.shares();
        let misses: u64 = shares.iter().map(|share| share.misses).sum();
        println!("misses {misses}");
    }
}

/// Statements drawn from a seed, and the hash of their answers.
fn run(seed: u64, statements: u64, folder: &Path, moves: impl Fn(u64)) {
    let mut random = fastrand::Rng::with_seed(seed);
    let files: Vec<_> = (0..3).map(|n| folder.join(format!("d{n}"))).collect();
    let mut connections: Vec<Connection> = files.iter().map(|file| open(file, seed)).collect();
    let mut hasher = DefaultHasher::new();
    for n in 1..=statements {
        let at = random.usize(0..connections.len());
        let statement = draw(&mut random);
        answer(&connections[at], &statement, &mut hasher);
        match random.u16(0..400) {
            // A connection that is opened and closed.
            0 => {
                let _ = connections[at].execute_batch("ROLLBACK");
                connections[at] = open(&files[at], seed);
            }
            1 => moves(n),
            _ => {}
        }
        if n.is_multiple_of(EACH) {
            println!("answers {:016x}", hasher.finish());
        }
    }
}

fn open(file: &Path, seed: u64) -> Connection {
    let connection = Connection::open(file).unwrap();
    let page = 512 << (seed % 6);
    let mode = if seed.is_multiple_of(2) {
        "WAL"
    } else {
        "DELETE"
    };
    let setup = format!(
        "PRAGMA page_size={page}; PRAGMA journal_mode={mode}; PRAGMA synchronous=OFF; PRAGMA cache_size=200; PRAGMA cache_spill=20;
         CREATE TABLE IF NOT EXISTS a (id INTEGER PRIMARY KEY, k INTEGER, text TEXT);
         CREATE TABLE IF NOT EXISTS b (k INTEGER PRIMARY KEY, n INTEGER, blob BLOB) WITHOUT ROWID;
         CREATE INDEX IF NOT EXISTS ak ON a (k); CREATE INDEX IF NOT EXISTS bn ON b (n, k);"
    );
    connection.execute_batch(&setup).unwrap();
    connection
}

fn draw(random: &mut fastrand::Rng) -> String {
    let (id, k) = (random.u32(0..5000), random.u32(0..800));
    let long = random.u32(1..900);
    let name = random.u32(0..3);
    match random.u8(0..40) {
        0..=8 => format!(
            "INSERT OR REPLACE INTO a VALUES ({id}, {k}, printf('%.*c', {long}, 'x') || {id})"
        ),
        9..=14 => format!("INSERT OR REPLACE INTO b VALUES ({id}, {k}, zeroblob({long}))"),
        15..=18 => format!(
            "UPDATE a SET text = text || '{k}', k = {k} WHERE id BETWEEN {id} AND {id} + 20"
        ),
        19 => format!("UPDATE b SET n = n + 1, blob = zeroblob({long} * 4) WHERE n < {k} / 8"),
        20..=21 => format!("DELETE FROM a WHERE id BETWEEN {id} AND {id} + 60"),
        22 => format!("DELETE FROM b WHERE n = {k}"),
        23 => "BEGIN".to_owned(),
        24..=25 => "COMMIT".to_owned(),
        26 => "ROLLBACK".to_owned(),
        27 => format!("SAVEPOINT s{name}"),
        28 => format!("ROLLBACK TO s{name}"),
        29 => format!("RELEASE s{name}"),
        30 if k < 160 => {
            format!("INSERT INTO a SELECT NULL, k, text FROM a WHERE k < {k} / 4 LIMIT 300")
        }
        31 if k < 160 => {
            format!("CREATE TABLE IF NOT EXISTS t{name} AS SELECT * FROM a WHERE k > {k}")
        }
        32 => format!("DROP TABLE IF EXISTS t{name}"),
        33 if k < 8 => "VACUUM".to_owned(),
        33 => "PRAGMA wal_checkpoint(TRUNCATE)".to_owned(),
        34 if k < 80 => "SELECT count(*), sum(length(text)), max(id) FROM a".to_owned(),
        35 => format!("SELECT a.id, b.n FROM a JOIN b ON a.id = b.k WHERE a.k = {k} ORDER BY 1, 2"),
        36 => format!(
            "SELECT k, count(*), sum(length(text)) FROM a GROUP BY k ORDER BY 2 DESC, 1 LIMIT {}",
            k % 40
        ),
        37 => format!(
            "SELECT DISTINCT substr(text, 1, 30) FROM a WHERE id > {id} ORDER BY text, id LIMIT 50"
        ),
        38 if k < 8 => "PRAGMA integrity_check".to_owned(),
        _ => format!(
            "SELECT * FROM a WHERE id = {id} UNION ALL SELECT k, n, length(blob) FROM b WHERE k = {id}"
        ),
    }
}

/// Returns the answer of a statement, or its error.
fn answer(connection: &Connection, statement: &str, hasher: &mut DefaultHasher) {
    statement.hash(hasher);
    let rows = || -> rusqlite::Result<Vec<String>> {
        let mut prepared = connection.prepare(statement)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let values: Result<Vec<Value>, _> =
                (0..columns).map(|column| row.get(column)).collect();
            all.push(format!("{:?}", values?));
        }
        Ok(all)
    };
    match rows() {
        Ok(rows) => rows.hash(hasher),
        Err(error) => error.to_string().hash(hasher),
    }
    connection.changes().hash(hasher);
}
