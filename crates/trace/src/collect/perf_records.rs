//! Records of a ring as the kernel writes them (perf_event_open(2)). Pure: bytes in, values out, no
//! panic on any input.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleLayout {
    pub stack: bool,
    pub raw: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleHead {
    pub id: u64,
    /// Process and thread; both are `u32::MAX` for an exiting thread.
    pub pid: u32,
    pub tid: u32,
    pub nanos: u64,
    pub cpu: u32,
    pub period: u64,
    /// `PERF_RECORD_MISC_CPUMODE_MASK` of the header.
    pub mode: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessRecord {
    /// A new name; with `exec` by execve(2), so that the process runs another program.
    Name {
        pid: u32,
        tid: u32,
        name: String,
        exec: bool,
    },
    Fork {
        pid: u32,
        tid: u32,
        parent: u32,
    },
    Exit {
        pid: u32,
        tid: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerfRecord<'a> {
    Sample {
        head: SampleHead,
        /// Frames, innermost first, with the kernel's marks between contexts.
        stack: Vec<u64>,
        raw: &'a [u8],
    },
    Process(u64, ProcessRecord),
    Lost {
        id: u64,
        count: u64,
    },
    Other,
}

struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }
}

/// Size of the trailer of non-sample records: process, thread, time, CPU, event ID.
const TRAILER: usize = 32;

/// Parses a record with its header; `shape` returns the sample layout of an event.
pub fn parse<'a>(
    bytes: &'a [u8],
    shape: impl Fn(u64) -> Option<SampleLayout>,
) -> Option<PerfRecord<'a>> {
    const LOST: u32 = 2;
    const COMM: u32 = 3;
    const EXIT: u32 = 4;
    const FORK: u32 = 7;
    const SAMPLE: u32 = 9;
    const COMM_EXEC: u16 = 1 << 13;
    let mut front = ByteReader(bytes);
    let kind = front.u32()?;
    let misc = u16::from_ne_bytes(front.take(2)?.try_into().ok()?);
    front.take(2)?;
    match kind {
        SAMPLE => parse_sample(front, misc, shape),
        LOST => Some(PerfRecord::Lost {
            id: front.u64()?,
            count: front.u64()?,
        }),
        COMM => {
            let nanos = trailer_time(bytes)?;
            let (pid, tid) = (front.u32()?, front.u32()?);
            let (name, exec) = (text(front.0), misc & COMM_EXEC != 0);
            let named = ProcessRecord::Name {
                pid,
                tid,
                name,
                exec,
            };
            Some(PerfRecord::Process(nanos, named))
        }
        FORK | EXIT => {
            let (pid, parent, tid) = (front.u32()?, front.u32()?, front.u32()?);
            front.u32()?;
            let nanos = front.u64()?;
            let what = match kind {
                FORK => ProcessRecord::Fork { pid, tid, parent },
                _ => ProcessRecord::Exit { pid, tid },
            };
            Some(PerfRecord::Process(nanos, what))
        }
        _ => Some(PerfRecord::Other),
    }
}

fn parse_sample<'a>(
    mut front: ByteReader<'a>,
    misc: u16,
    shape: impl Fn(u64) -> Option<SampleLayout>,
) -> Option<PerfRecord<'a>> {
    const CPU_MODES: u16 = 7;
    let id = front.u64()?;
    // Skip the address of the CPU, which the stack has too.
    front.u64()?;
    let (pid, tid, nanos, cpu) = (front.u32()?, front.u32()?, front.u64()?, front.u32()?);
    front.u32()?;
    let period = front.u64()?;
    let shape = shape(id)?;
    let mut stack = Vec::new();
    if shape.stack {
        let frames = usize::try_from(front.u64()?).ok()?;
        let words = front.take(frames.checked_mul(8)?)?.as_chunks::<8>().0;
        stack.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
    }
    let raw = match shape.raw {
        true => {
            let length = usize::try_from(front.u32()?).ok()?;
            front.take(length)?
        }
        false => &[],
    };
    Some(PerfRecord::Sample {
        head: SampleHead {
            id,
            pid,
            tid,
            nanos,
            cpu,
            period,
            mode: misc & CPU_MODES,
        },
        stack,
        raw,
    })
}

fn trailer_time(bytes: &[u8]) -> Option<u64> {
    let mut front = ByteReader(bytes.last_chunk::<TRAILER>()?);
    front.u64()?;
    front.u64()
}

/// Parses text up to a zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(u16::try_from(body.len() + 8).unwrap().to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn two(first: u32, second: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_ne_bytes());
        bytes[4..].copy_from_slice(&second.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn a_sample_with_all_parts() {
        let mut body = words(&[5, 0xabc, two(10, 11), 99, two(1, 0), 7, 2, 0xaa, 0xbb]);
        body.extend(4u32.to_ne_bytes());
        body.extend([1, 2, 3, 4]);
        let bytes = record(9, 1, &body);
        let both = |_| {
            Some(SampleLayout {
                stack: true,
                raw: true,
            })
        };
        let Some(PerfRecord::Sample { head, stack, raw }) = parse(&bytes, both) else {
            panic!("no sample");
        };
        assert_eq!(
            (
                head.pid,
                head.tid,
                head.nanos,
                head.cpu,
                head.period,
                head.mode
            ),
            (10, 11, 99, 1, 7, 1)
        );
        assert_eq!((stack, raw), (vec![0xaa, 0xbb], &[1u8, 2, 3, 4][..]));
        // An event that was not opened.
        assert_eq!(parse(&bytes, |_| None), None);
    }

    #[test]
    fn names_and_forks() {
        let mut body = words(&[two(3, 4)]);
        body.extend(b"postgres\0\0\0\0\0\0\0\0");
        body.extend(words(&[two(3, 4), 77, 0, 1]));
        let shape = |_| None;
        let bytes = record(3, 1 << 13, &body);
        let name = parse(&bytes, shape);
        assert!(
            matches!(name, Some(PerfRecord::Process(77, ProcessRecord::Name { pid: 3, tid: 4, ref name, exec: true })) if name == "postgres")
        );
        let fork = record(7, 0, &words(&[two(5, 3), two(5, 3), 66]));
        assert!(matches!(
            parse(&fork, shape),
            Some(PerfRecord::Process(
                66,
                ProcessRecord::Fork {
                    pid: 5,
                    tid: 5,
                    parent: 3
                }
            ))
        ));
    }

    proptest! {
        #[test]
        fn nothing_panics(kind in 0u32..16, misc: u16, body in proptest::collection::vec(any::<u8>(), 0..200), stack: bool, raw: bool) {
            let _ = parse(&record(kind, misc, &body), |_| Some(SampleLayout { stack, raw }));
            let _ = parse(&body, |_| Some(SampleLayout { stack, raw }));
        }
    }
}
