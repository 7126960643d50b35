//! The trace file: one plain line that says what it is, then the model as CBOR, compressed with
//! gzip. It is written whole or not at all; what it must not do is take a damaged file for a
//! smaller trace.

use std::cmp::Ordering;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hugeleaf_sys::{Draft, Existing, PathError};

use crate::model::{SCHEMA, Trace};

mod bounds;

/// What every trace file begins with; the number is [`SCHEMA`].
const MAGIC: &str = "hugeleaf trace ";

/// How hard gzip tries: a file of a busy half minute takes a fraction of a second.
const LEVEL: Compression = Compression::new(6);

/// No trace is larger than this when unpacked; a file that says so is damaged or hostile.
const LARGEST: u64 = 1 << 30; // not a page size

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// The system would not.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: std::io::Error,
    },
    /// Something else.
    #[error("{}: not a trace (it does not begin with '{}')", path.display(), MAGIC.trim_end())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// From a later program.
    #[error("{}: a trace of schema {schema}, and this program reads up to {SCHEMA}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        schema: u32,
    },
    /// From an earlier program, whose files were packed in another way.
    #[error("{}: a trace of schema {schema}, and this program reads {SCHEMA}", path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema.
        schema: u32,
    },
    /// Its end is missing.
    #[error("{}: the trace is cut off: {reason}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// It is damaged in some other way.
    #[error("{}: the trace is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
}

impl TraceFileError {
    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            TraceFileError::Io { path, error } => match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "name a file that 'hugeleaf trace --for 10s -o FILE' wrote".to_owned()
                }
                std::io::ErrorKind::StorageFull => format!(
                    "make room there: df {}; or write elsewhere with -o",
                    folder_of(path).display()
                ),
                _ => format!("look at it: ls -l {}", path.display()),
            },
            TraceFileError::Foreign { .. } => {
                "name a file that 'hugeleaf trace --for 10s -o FILE' wrote".to_owned()
            }
            TraceFileError::Newer { .. } => {
                "read it with the hugeleaf that wrote it, or a later one".to_owned()
            }
            TraceFileError::Older { .. } => {
                "trace again; or show it with the hugeleaf that wrote it".to_owned()
            }
            TraceFileError::Truncated { .. } | TraceFileError::Damaged { .. } => {
                "copy it again from where it was written; if it is so there, trace again".to_owned()
            }
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes sure that a trace can be written there before time is spent on it. What is there stays.
///
/// # Errors
/// [`TraceFileError::Io`].
pub fn check_writable(path: &Path) -> Result<(), TraceFileError> {
    begin(path).map(drop)
}

fn begin(path: &Path) -> Result<Draft, TraceFileError> {
    Draft::begin(path, Existing::Replaced).map_err(|error| unwritten(path, error))
}

fn unwritten(path: &Path, error: PathError) -> TraceFileError {
    TraceFileError::Io {
        path: path.to_owned(),
        error: match error {
            PathError::Call(error) => error.errno.into(),
            other => std::io::Error::other(other.reason()),
        },
    }
}

/// Writes a trace: to a file next to it first, which takes its place when all is on disk. So there
/// is never half a file, and an earlier one stays until then. Gives the size of the
/// file; 0 of a device.
///
/// # Errors
/// [`TraceFileError::Io`].
pub fn write_trace(path: &Path, trace: &Trace) -> Result<u64, TraceFileError> {
    let mut draft = begin(path)?;
    write_to(&mut draft, trace).map_err(|error| TraceFileError::Io {
        path: path.to_owned(),
        error,
    })?;
    let size = draft.length();
    draft.commit().map_err(|error| unwritten(path, error))?;
    Ok(size)
}

/// Writes a trace to any writer.
///
/// # Errors
/// The writer's.
pub fn write_to(out: &mut impl Write, trace: &Trace) -> std::io::Result<()> {
    writeln!(out, "{MAGIC}{SCHEMA}")?;
    let mut packed = GzEncoder::new(BufWriter::new(out), LEVEL);
    ciborium::into_writer(trace, &mut packed).map_err(|e| match e {
        ciborium::ser::Error::Io(e) => e,
        ciborium::ser::Error::Value(text) => std::io::Error::other(text),
    })?;
    packed.finish()?.flush()
}

/// Reads a trace.
///
/// # Errors
/// [`TraceFileError`]: not there, foreign, older, newer, cut off, damaged.
pub fn read_trace(path: &Path) -> Result<Trace, TraceFileError> {
    let file = std::fs::File::open(path).map_err(|error| TraceFileError::Io {
        path: path.to_owned(),
        error,
    })?;
    read_from(BufReader::new(file), path)
}

/// Reads a trace from any reader; `path` is what errors name.
///
/// # Errors
/// Those of [`read_trace`].
pub fn read_from(mut input: impl Read, path: &Path) -> Result<Trace, TraceFileError> {
    let io = |error| TraceFileError::Io {
        path: path.to_owned(),
        error,
    };
    let schema = read_header(&mut input, path)?;
    match schema.cmp(&SCHEMA) {
        Ordering::Greater => {
            let path = path.to_owned();
            return Err(TraceFileError::Newer { path, schema });
        }
        Ordering::Less => {
            let path = path.to_owned();
            return Err(TraceFileError::Older { path, schema });
        }
        Ordering::Equal => {}
    }
    let unpacked = GzDecoder::new(input);
    let mut bytes = Vec::new();
    let length = unpacked.take(LARGEST).read_to_end(&mut bytes);
    match length {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(TraceFileError::Truncated {
                path: path.to_owned(),
                reason: format!("{} bytes of the trace could be unpacked", bytes.len()),
            });
        }
        // The reader's own failures have an errno, those of the packed form have none.
        Err(e) if e.raw_os_error().is_some() => return Err(io(e)),
        Err(e) => {
            return Err(TraceFileError::Damaged {
                path: path.to_owned(),
                reason: e.to_string(),
            });
        }
    }
    if bytes.is_empty() {
        return Err(TraceFileError::Truncated {
            path: path.to_owned(),
            reason: "nothing follows its first line".to_owned(),
        });
    }
    parse(&bytes, path)
}

/// The line at the start: the schema.
fn read_header(input: &mut impl Read, path: &Path) -> Result<u32, TraceFileError> {
    let foreign = || TraceFileError::Foreign {
        path: path.to_owned(),
    };
    let mut line = Vec::new();
    let mut byte = [0u8; 1];
    while line.len() < MAGIC.len() + 10 {
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte[0] == b'\n' => {
                let text = String::from_utf8(line).map_err(|_| foreign())?;
                let number = text.strip_prefix(MAGIC).ok_or_else(foreign)?;
                return number.parse().map_err(|_| foreign());
            }
            Ok(_) => line.push(byte[0]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(TraceFileError::Io {
                    path: path.to_owned(),
                    error,
                });
            }
        }
    }
    // A file that was cut off within the first line still shows whose it is.
    if line.len() > MAGIC.len() / 2 && MAGIC.as_bytes().starts_with(&line) {
        return Err(TraceFileError::Truncated {
            path: path.to_owned(),
            reason: "its first line is not complete".to_owned(),
        });
    }
    Err(foreign())
}

fn parse(bytes: &[u8], path: &Path) -> Result<Trace, TraceFileError> {
    let damaged = |reason: String| TraceFileError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let trace: Trace = ciborium::from_reader(bytes).map_err(|e| damaged(e.to_string()))?;
    check(&trace).map_err(damaged)?;
    Ok(trace)
}

/// Every reference in a trace leads somewhere, and no sum of its counts wraps: whoever draws it may
/// follow and add them without looking.
fn check(trace: &Trace) -> Result<(), String> {
    let (processes, symbols, stacks) = (
        trace.processes.len(),
        trace.symbols.len(),
        trace.stacks.len(),
    );
    let within = |what: &str, place: u32, of: usize| match (place as usize) < of {
        true => Ok(()),
        false => Err(format!("it names {what} {place} of {of}")),
    };
    for frame in trace.stacks.iter().flat_map(|s| &s.frames) {
        within("symbol", *frame, symbols)?;
    }
    for sample in trace.samples.iter().chain(&trace.faults) {
        within("process", sample.process, processes)?;
        within("stack", sample.stack, stacks)?;
    }
    for pin in &trace.pins {
        within("process", pin.process, processes)?;
    }
    for event in &trace.memory_events {
        event
            .process
            .map_or(Ok(()), |p| within("process", p, processes))?;
        event.stack.map_or(Ok(()), |s| within("stack", s, stacks))?;
    }
    for lock in &trace.locks {
        lock.taken_by
            .map_or(Ok(()), |f| within("symbol", f, symbols))?;
        for caller in &lock.by_caller {
            within("stack", caller.stack, stacks)?;
            caller
                .function
                .map_or(Ok(()), |f| within("symbol", f, symbols))?;
        }
        for thread in &lock.by_thread {
            within("process", thread.process, processes)?;
        }
        for event in &lock.events {
            within("process", event.process, processes)?;
            event
                .function
                .map_or(Ok(()), |f| within("symbol", f, symbols))?;
        }
    }
    bounds::check(trace)
}

#[cfg(test)]
mod tests;
