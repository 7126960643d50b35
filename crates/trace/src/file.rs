//! The trace file: a plain line that identifies it, then the model as CBOR, compressed with gzip.
//! It is written whole or not at all. A damaged file must never be read as a smaller trace.

use std::cmp::Ordering;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hugeleaf_sys::{OnExisting, PathError, StagedFile};
use hugeleaf_units::Failure;

use crate::model::{SCHEMA, Trace};

mod overflow_check;

/// The beginning of every trace file; [`SCHEMA`] follows.
const MAGIC: &str = "hugeleaf trace ";

/// gzip level: a file of a busy half minute takes a fraction of a second.
const LEVEL: Compression = Compression::new(6);

/// Maximum unpacked size of a trace; a larger one is damaged or hostile.
const LARGEST: u64 = 1 << 30; // not a page size

#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TraceFileError {
    pub path: PathBuf,
    #[source]
    pub problem: TraceProblem,
}

#[derive(Debug, thiserror::Error)]
pub enum TraceProblem {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("not a trace (it does not begin with '{}')", MAGIC.trim_end())]
    Foreign,
    /// Written by a later program, with this schema.
    #[error("it has schema {0}, and this hugeleaf reads up to {SCHEMA}")]
    Newer(u32),
    /// Written by an earlier program, with another packing.
    #[error("it has schema {0}, and this hugeleaf reads {SCHEMA}")]
    Older(u32),
    #[error("the trace is cut off: {0}")]
    Truncated(String),
    #[error("the trace is damaged: {0}")]
    Damaged(String),
}

impl TraceProblem {
    fn in_file(self, path: &Path) -> TraceFileError {
        TraceFileError {
            path: path.to_owned(),
            problem: self,
        }
    }
}

impl TraceFileError {
    pub fn next(&self) -> String {
        match &self.problem {
            TraceProblem::Io(error) if error.kind() == ErrorKind::StorageFull => format!(
                "make room: df {}; or write elsewhere with -o",
                folder_of(&self.path).display()
            ),
            TraceProblem::Io(error) if error.kind() != ErrorKind::NotFound => {
                format!("check it: ls -l {}", self.path.display())
            }
            TraceProblem::Io(_) | TraceProblem::Foreign => {
                "name a file that 'hugeleaf trace --for 10s -o FILE' wrote".to_owned()
            }
            TraceProblem::Newer(_) => {
                "read it with the hugeleaf that wrote it, or a later one".to_owned()
            }
            TraceProblem::Older(_) => {
                "trace again; or show it with the hugeleaf that wrote it".to_owned()
            }
            TraceProblem::Truncated(_) | TraceProblem::Damaged(_) => {
                "copy it again; if the original is damaged too, trace again".to_owned()
            }
        }
    }
}

impl From<TraceFileError> for Failure {
    fn from(error: TraceFileError) -> Failure {
        Failure::missing(error.to_string(), error.next())
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks that a trace can be written to `path` before time is spent on it. An existing file stays.
pub fn check_writable(path: &Path) -> Result<(), TraceFileError> {
    begin(path).map(drop)
}

fn begin(path: &Path) -> Result<StagedFile, TraceFileError> {
    StagedFile::begin(path, OnExisting::Replaced).map_err(|error| unwritten(path, error))
}

fn unwritten(path: &Path, error: PathError) -> TraceFileError {
    let error = match error {
        PathError::Call(error) => error.errno.into(),
        other => std::io::Error::other(other.reason()),
    };
    TraceProblem::Io(error).in_file(path)
}

/// Writes a trace to a temporary file, which replaces `path` once all is on disk. So an earlier
/// file stays until then, and no partial file ever appears. Returns the size of the file; 0 for a
/// device.
pub fn write_trace(path: &Path, trace: &Trace) -> Result<u64, TraceFileError> {
    let mut draft = begin(path)?;
    write_to(&mut draft, trace).map_err(|error| TraceProblem::Io(error).in_file(path))?;
    let size = draft.length();
    draft.commit().map_err(|error| unwritten(path, error))?;
    Ok(size)
}

pub fn write_to(out: &mut impl Write, trace: &Trace) -> std::io::Result<()> {
    writeln!(out, "{MAGIC}{SCHEMA}")?;
    let mut packed = GzEncoder::new(BufWriter::new(out), LEVEL);
    ciborium::into_writer(trace, &mut packed).map_err(|e| match e {
        ciborium::ser::Error::Io(e) => e,
        ciborium::ser::Error::Value(text) => std::io::Error::other(text),
    })?;
    packed.finish()?.flush()
}

#[expect(clippy::disallowed_methods, reason = "a file that the user named")]
pub fn read_trace(path: &Path) -> Result<Trace, TraceFileError> {
    let file = std::fs::File::open(path).map_err(|error| TraceProblem::Io(error).in_file(path))?;
    read_from(BufReader::new(file), path)
}

/// Reads a trace from any reader; `path` is the name in errors.
pub fn read_from(input: impl BufRead, path: &Path) -> Result<Trace, TraceFileError> {
    unpack(input).map_err(|problem| problem.in_file(path))
}

fn unpack(mut input: impl BufRead) -> Result<Trace, TraceProblem> {
    let schema = read_header(&mut input)?;
    match schema.cmp(&SCHEMA) {
        Ordering::Greater => return Err(TraceProblem::Newer(schema)),
        Ordering::Less => return Err(TraceProblem::Older(schema)),
        Ordering::Equal => {}
    }
    let unpacked = GzDecoder::new(input);
    let mut bytes = Vec::new();
    match unpacked.take(LARGEST).read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            let count = bytes.len();
            let reason = format!("only {count} bytes could be unpacked");
            return Err(TraceProblem::Truncated(reason));
        }
        // Errors of the reader have an errno, those of the packed format have none.
        Err(e) if e.raw_os_error().is_some() => return Err(e.into()),
        Err(e) => return Err(TraceProblem::Damaged(e.to_string())),
    }
    if bytes.is_empty() {
        let reason = "nothing follows its first line".to_owned();
        return Err(TraceProblem::Truncated(reason));
    }
    let trace = ciborium::from_reader(&bytes[..]);
    let trace: Trace = trace.map_err(|e| TraceProblem::Damaged(e.to_string()))?;
    check(&trace).map_err(TraceProblem::Damaged)?;
    Ok(trace)
}

fn read_header(input: &mut impl BufRead) -> Result<u32, TraceProblem> {
    const LONGEST: u64 = MAGIC.len() as u64 + 10;
    let mut line = Vec::new();
    input.take(LONGEST).read_until(b'\n', &mut line)?;
    if let Some(line) = line.strip_suffix(b"\n") {
        let text = std::str::from_utf8(line).ok();
        let number = text.and_then(|text| text.strip_prefix(MAGIC)?.parse().ok());
        return number.ok_or(TraceProblem::Foreign);
    }
    // A file cut off within the first line is still recognizable.
    match line.len() > MAGIC.len() / 2 && MAGIC.as_bytes().starts_with(&line) {
        true => Err(TraceProblem::Truncated(
            "its first line is incomplete".to_owned(),
        )),
        false => Err(TraceProblem::Foreign),
    }
}

/// Checks that every reference in a trace is valid and that no sum of counts wraps. Drawing code
/// may then follow and add them unchecked.
fn check(trace: &Trace) -> Result<(), String> {
    let (processes, symbols, stacks) = (
        trace.processes.len(),
        trace.symbols.len(),
        trace.stacks.len(),
    );
    let within = |what: &str, place: u32, of: usize| match (place as usize) < of {
        true => Ok(()),
        false => Err(format!("it refers to {what} {place} of {of}")),
    };
    let process = |place: u32| within("process", place, processes);
    let symbol = |place: Option<u32>| place.map_or(Ok(()), |f| within("symbol", f, symbols));
    let stack = |place: u32| within("stack", place, stacks);
    let mut frames = trace.stacks.iter().flat_map(|s| &s.frames);
    frames.try_for_each(|frame| symbol(Some(*frame)))?;
    for sample in trace.samples.iter().chain(&trace.faults) {
        process(sample.process)?;
        stack(sample.stack)?;
    }
    trace.pins.iter().try_for_each(|pin| process(pin.process))?;
    for event in &trace.memory_events {
        event.process.map_or(Ok(()), process)?;
        event.stack.map_or(Ok(()), stack)?;
    }
    for lock in &trace.locks {
        symbol(lock.taken_by)?;
        for caller in &lock.by_caller {
            stack(caller.stack)?;
            symbol(caller.function)?;
        }
        lock.by_thread.iter().try_for_each(|t| process(t.process))?;
        for event in &lock.events {
            process(event.process)?;
            symbol(event.function)?;
        }
    }
    overflow_check::check(trace)
}

#[cfg(test)]
mod tests;
