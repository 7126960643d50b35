//! MariaDB and MySQL: sets `SET GLOBAL innodb_buffer_pool_size`.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::mysql::{MysqlAddress, MysqlConnection, MysqlShowConnection};
use hugeleaf_sys::{Deadline, Pid, open_regular, read_at_most};
use hugeleaf_units::Bytes;

use crate::server::{
    CacheCounts, ConnectOptions, PATIENCE, ResizableServer, ServerKind, ServerObserver, ServerState,
};

/// Resize step of the pool on servers without a chunk size (MariaDB from 10.11.12 on).
const EXTENT: Bytes = Bytes::from_mib(8);
/// Time limit for the resize statement, which ends when the resize is complete.
const RESIZE: Duration = Duration::from_secs(45);
/// Time limit for free pages to appear. A server that reads nothing gets no more of them later.
const AWAITED: Duration = Duration::from_secs(1);

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["mariadb", "mysql"],
    address: "mysql://USER:PASSWORD@host:port, or a socket path",
    example: "mysql://root@localhost/?socket=/run/mysqld/mysqld.sock",
    resizes: "`innodb_buffer_pool_size`, in chunks of all instances",
    benefit: "`Innodb_buffer_pool_read_requests` and `Innodb_buffer_pool_reads`",
    miss: Duration::from_micros(100),
    processes: &["mariadbd", "mysqld"],
    is_shared: false,
    evicts: false,
    returns: Duration::from_secs(45),
    check: |address| {
        let address = MysqlAddress::parse(address)?;
        Ok(address.place().to_string())
    },
    observe: |opening| Box::new(MariadbReader::new(opening)),
    open: |opening| Box::new(MariaDb(MariadbReader::new(opening))),
};

/// Reads its state. Its connection sends `SHOW` statements only.
struct MariadbReader {
    address: Result<MysqlAddress, String>,
    connection: Option<MysqlShowConnection>,
}

/// Sets its size.
struct MariaDb(MariadbReader);

impl MariadbReader {
    fn new(opening: &ConnectOptions) -> MariadbReader {
        MariadbReader {
            address: MysqlAddress::parse(&opening.address),
            connection: None,
        }
    }

    /// Opens a connection of one of the kinds.
    fn connect<T>(
        &self,
        open: fn(&MysqlAddress, Deadline<'_>) -> Result<T, QueryError>,
        question: Deadline<'_>,
    ) -> Result<T, QueryError> {
        let address = self.address.as_ref();
        let address = address.map_err(|why| QueryError::new(why.clone()))?;
        // The server's message may contain the password.
        let hidden = |e: QueryError| match address.password.as_deref() {
            Some(secret) if !secret.is_empty() => QueryError {
                what: e.what.replace(secret, "***"),
                ..e
            },
            _ => e,
        };
        open(address, question).map_err(hidden)
    }

    fn pairs(
        &mut self,
        shown: &'static str,
        question: Deadline<'_>,
    ) -> Result<ServerVariables, QueryError> {
        // After an error it reconnects.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(MysqlShowConnection::open, question)?,
        };
        let rows = connection.show(shown, question)?.into_iter();
        self.connection = Some(connection);
        let pair = |row: Vec<String>| <[String; 2]>::try_from(row).ok().map(|[a, b]| (a, b));
        Ok(ServerVariables(rows.filter_map(pair).collect()))
    }
}

impl MariaDb {
    /// Waits until as many pages are free as will be removed, which occurs now and then while the server reads. From
    /// 10.11.12 on a reduction moves kept pages into free ones. If these do not suffice, it evicts the least recently used
    /// pages until the right ones are free, possibly all (tested: 10.11.19, 120M to 104M, 48 of 6,480 left).
    fn await_free_pages(&mut self, to: Bytes, question: Deadline<'_>) -> Result<(), QueryError> {
        /// Extra pages, for reads during the resize.
        const SPARE: u64 = 256;
        const SLICE: Duration = Duration::from_millis(50);
        let variables = self.0.pairs(VARIABLES, question)?;
        let is_new = variables.number("innodb_buffer_pool_chunk_size") == Some(0)
            || variables.number("innodb_buffer_pool_size_max").is_some();
        let size = Bytes(variables.must("innodb_buffer_pool_size")?);
        let page = variables.number("innodb_page_size").unwrap_or(0);
        let wanted = (size - to).get().checked_div(page).unwrap_or(0) + SPARE;
        // The server never keeps that many pages free.
        if !is_new || size <= to || wanted > kept(&variables) {
            return Ok(());
        }
        for _ in 0..AWAITED.as_millis() / SLICE.as_millis() {
            let status = self.0.pairs(STATUS, question)?;
            let free = status.number("Innodb_buffer_pool_pages_free");
            if free.is_none_or(|free| free >= wanted) {
                break;
            }
            let ended = |e: std::io::Error| QueryError::new(e.to_string());
            question.wait(&mut [], SLICE).map_err(ended)?;
        }
        Ok(())
    }
}

/// Names and values, as listed by `SHOW`.
struct ServerVariables(BTreeMap<String, String>);

impl ServerVariables {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.trim().parse().ok()
    }

    fn must(&self, name: &str) -> Result<u64, QueryError> {
        self.number(name)
            .ok_or_else(|| QueryError::new(format!("the server reports no {name}")))
    }
}

const VARIABLES: &str = "GLOBAL VARIABLES WHERE Variable_name IN ('innodb_buffer_pool_size', \
    'innodb_buffer_pool_size_max', 'innodb_buffer_pool_chunk_size', 'innodb_buffer_pool_instances', 'innodb_page_size', \
    'innodb_lru_scan_depth', 'pid_file', 'datadir')";
const STATUS: &str = "GLOBAL STATUS WHERE Variable_name IN ('Innodb_buffer_pool_read_requests', \
    'Innodb_buffer_pool_reads', 'Innodb_buffer_pool_pages_free', 'Innodb_buffer_pool_bytes_data', 'Innodb_buffer_pool_resize_status')";

fn look_of(
    variables: &ServerVariables,
    status: &ServerVariables,
) -> Result<ServerState, QueryError> {
    let chunk = variables
        .number("innodb_buffer_pool_chunk_size")
        .unwrap_or(0);
    let instances = variables.number("innodb_buffer_pool_instances");
    let granule = Bytes(chunk) * instances.unwrap_or(1).max(1);
    let size = Bytes(variables.must("innodb_buffer_pool_size")?);
    let ceiling = variables
        .number("innodb_buffer_pool_size_max")
        .filter(|most| *most > 0);
    let doing = status.0.get("Innodb_buffer_pool_resize_status");
    let doing = doing.filter(|text| is_under_way(text));
    let reads = status.must("Innodb_buffer_pool_reads")?;
    Ok(ServerState {
        size,
        granule: if granule.is_zero() { EXTENT } else { granule },
        ceiling: ceiling.map(Bytes),
        used: used(variables, status, size),
        unmaps: true,
        counts: Some(CacheCounts {
            operations: status.must("Innodb_buffer_pool_read_requests")?,
            misses: reads,
        }),
        busy: doing.map(|text| format!("the server reports: {text}")),
        ..ServerState::default()
    })
}

/// Returns the pool's memory in use. Its data alone is too little: a full pool of 2G has 36M less data, due to page
/// descriptors and pages kept free (tested: MariaDB 10.11).
fn used(variables: &ServerVariables, status: &ServerVariables, size: Bytes) -> Option<Bytes> {
    let free = status.number("Innodb_buffer_pool_pages_free");
    let Some((free, page)) = free.zip(variables.number("innodb_page_size")) else {
        return status.number("Innodb_buffer_pool_bytes_data").map(Bytes);
    };
    Some(size - Bytes(page) * free.saturating_sub(kept(variables)))
}

/// Returns the number of pages that it keeps free for reads.
fn kept(variables: &ServerVariables) -> u64 {
    let instances = variables.number("innodb_buffer_pool_instances");
    variables.number("innodb_lru_scan_depth").unwrap_or(0) * instances.unwrap_or(1).max(1)
}

/// True if the status text describes a resize in progress. It is over if the text is empty or contains one of these words.
fn is_under_way(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let over = [
        "completed",
        "not started",
        "failed",
        "abort",
        "size did not change",
    ];
    !text.trim().is_empty() && !over.iter().any(|word| text.contains(word))
}

impl ServerObserver for MariadbReader {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        let question = Deadline::new(PATIENCE);
        let variables = self.pairs(VARIABLES, question)?;
        let status = self.pairs(STATUS, question)?;
        let mut look = look_of(&variables, &status)?;
        look.pid = pid_in(&variables, question);
        Ok(look)
    }
}

impl ResizableServer for MariaDb {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        &mut self.0
    }

    fn resize(&mut self, to: Bytes) -> Result<(), QueryError> {
        let question = Deadline::new(RESIZE);
        self.await_free_pages(to, question)?;
        let mut connection = self.0.connect(MysqlConnection::open, question)?;
        let query = format!("SET GLOBAL innodb_buffer_pool_size = {}", to.get());
        connection.query(&query, question)?;
        connection.close(question);
        Ok(())
    }
}

/// Returns the number in its pid file; relative names are below its data folder.
fn pid_in(variables: &ServerVariables, question: Deadline<'_>) -> Option<Pid> {
    let file = std::path::Path::new(variables.0.get("datadir")?).join(variables.0.get("pid_file")?);
    let read = move || read_at_most(&open_regular(&file).ok()?, Bytes(32)).ok();
    // Its data may be on a file server that does not answer.
    let text = String::from_utf8(question.run_detached(read).ok()??).ok()?;
    text.trim().parse().ok().map(Pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(&str, &str)]) -> ServerVariables {
        let pairs = of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        ServerVariables(pairs.collect())
    }

    #[test]
    fn chunks_of_all_instances_and_a_ceiling() {
        let status = pairs(&[
            ("Innodb_buffer_pool_read_requests", "10"),
            ("Innodb_buffer_pool_reads", "3"),
            (
                "Innodb_buffer_pool_resize_status",
                "Withdrawing blocks. (1/2).",
            ),
        ]);
        let variables = pairs(&[
            ("innodb_buffer_pool_size", "1000"),
            ("innodb_buffer_pool_chunk_size", "100"),
            ("innodb_buffer_pool_instances", "4"),
        ]);
        let look = look_of(&variables, &status).unwrap();
        assert_eq!((look.granule, look.ceiling), (Bytes(400), None));
        assert!(look.busy.unwrap().contains("Withdrawing"));
        let newer = pairs(&[
            ("innodb_buffer_pool_size", "1000"),
            ("innodb_buffer_pool_chunk_size", "0"),
            ("innodb_buffer_pool_size_max", "1000"),
        ]);
        let look = look_of(&newer, &status).unwrap();
        assert_eq!((look.granule, look.ceiling), (EXTENT, Some(Bytes(1000))));
        assert!(look_of(&pairs(&[]), &status).is_err());
    }

    #[test]
    fn pages_that_it_keeps_free_are_in_use() {
        // Values of MariaDB 10.11 with a full pool of 2G: 36M less data than that.
        let variables = pairs(&[
            ("innodb_buffer_pool_size", "2147483648"),
            ("innodb_page_size", "16384"),
            ("innodb_lru_scan_depth", "1536"),
        ]);
        let used_with = |free: &str| {
            let status = pairs(&[
                ("Innodb_buffer_pool_read_requests", "10"),
                ("Innodb_buffer_pool_reads", "3"),
                ("Innodb_buffer_pool_bytes_data", "2109734912"),
                ("Innodb_buffer_pool_pages_free", free),
            ]);
            look_of(&variables, &status).unwrap().used.unwrap()
        };
        assert_eq!(used_with("1024"), Bytes(2_147_483_648));
        assert_eq!(used_with("2536"), Bytes(2_147_483_648 - 1000 * 16384));
    }

    #[test]
    fn a_resize_that_is_over() {
        for over in [
            "",
            "Completed resizing buffer pool at 1.",
            "Resizing buffer pool failed",
        ] {
            assert!(!is_under_way(over), "{over}");
        }
        assert!(is_under_way("Resizing hash tables."));
    }

    #[test]
    fn no_password_is_shown() {
        let check = KIND.check;
        assert_eq!(check("mysql://me:secret@db:3307"), Ok("db:3307".into()));
        assert_eq!(check("/run/a b.sock"), Ok("/run/a b.sock".into()));
        assert!(check("mysql://[bad").is_err());
    }
}
