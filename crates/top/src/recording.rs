//! Recordings: samples in a file, one JSON object per line after a head line. Every 60th line holds all programs.
//! The others hold those that changed, so that an idle host takes little space.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hugeleaf_sys::{OnExisting, open_regular, write_whole};
use hugeleaf_units::{Bytes, Failure};
use serde::{Deserialize, Serialize};

use crate::model::{HostSample, TreeSample};

const VERSION: u32 = 1;
/// Maximum size of a recording. It stops there.
pub const MOST: Bytes = Bytes(256 << 20);
/// Interval of lines that hold all programs.
const WHOLE_EVERY: usize = 60;
/// Maximum length of a line.
const LONGEST: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct RecordingHeader {
    hugeleaf_top: u32,
    version: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordLine<S> {
    /// True if all programs are in it. Otherwise it has those that changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    whole: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<u32>,
    sample: S,
}

#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    length: u64,
    most: Bytes,
    scans: usize,
    before: HashMap<u32, TreeSample>,
}

const NEW_FILE: &str = "name a new file in a directory that you can write, with free space";
const A_RECORDING: &str = "name a file that hugeleaf top --record wrote";

impl Recorder {
    /// Creates a new file. An existing file is kept and is an error.
    pub fn create(path: &Path) -> Result<Recorder, Failure> {
        let head = RecordingHeader {
            hugeleaf_top: VERSION,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let head = line_of(&head);
        write_whole(path, head.as_bytes(), OnExisting::Kept)
            .map_err(|error| Failure::missing(error.to_string(), NEW_FILE))?;
        // Links are not followed, because the name must be the file just created.
        let file = (OpenOptions::new().append(true))
            .custom_flags(hugeleaf_sys::NOFOLLOW_FLAG)
            .open(path)
            .map_err(|why| Failure::missing(format!("{}: {why}", path.display()), NEW_FILE))?;
        Ok(Recorder {
            path: path.to_owned(),
            file,
            length: head.len() as u64,
            most: MOST,
            scans: 0,
            before: HashMap::new(),
        })
    }

    pub fn add(&mut self, sample: &HostSample) -> Result<(), Failure> {
        let whole = self.scans.is_multiple_of(WHOLE_EVERY);
        let text = line_of(&self.line(sample, whole));
        self.scans += 1;
        let fail = |why: String| {
            let path = self.path.display();
            Failure::missing(format!("{path}: {why}; the recording ends here"), NEW_FILE)
        };
        let length = self.length + text.len() as u64;
        if length > self.most.get() {
            let most = self.most;
            return Err(fail(format!("the maximum size of {most} is reached")));
        }
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // A partly written line is of no use to a reader.
            let _ = self.file.set_len(self.length);
            return Err(fail(error.to_string()));
        }
        self.length = length;
        Ok(())
    }

    fn line(&mut self, sample: &HostSample, whole: bool) -> RecordLine<HostSample> {
        let now: HashMap<u32, TreeSample> = (sample.programs.iter())
            .map(|p| (p.pid, p.clone()))
            .collect();
        let before = std::mem::replace(&mut self.before, now);
        let is_new = |p: &&TreeSample| whole || before.get(&p.pid) != Some(*p);
        let gone = before.keys().filter(|pid| !self.before.contains_key(pid));
        let mut gone: Vec<u32> = gone.filter(|_| !whole).copied().collect();
        gone.sort_unstable();
        RecordLine {
            whole,
            gone,
            sample: HostSample {
                programs: sample.programs.iter().filter(is_new).cloned().collect(),
                ..sample.clone()
            },
        }
    }
}

fn unread(path: &Path, why: &std::io::Error) -> Failure {
    Failure::missing(format!("{}: {why}", path.display()), A_RECORDING)
}

/// Serializes a value as a line. This cannot fail for values made in memory.
fn line_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// Reads a recording, one sample at a time, in any order.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: BufReader<File>,
    /// Offset of each sample's line, and true if it holds all programs.
    scans: Vec<(u64, bool)>,
    pub at: usize,
    sample: HostSample,
    pub is_cut: bool,
}

impl Recording {
    /// Opens a recording and checks every line.
    ///
    /// # Errors
    /// If it cannot be read, or is no recording. An unfinished last line is skipped, since its writer was killed.
    pub fn open(path: &Path) -> Result<Recording, Failure> {
        let file = open_regular(path).map_err(|why| unread(path, &why))?;
        let mut recording = Recording {
            path: path.to_owned(),
            file: BufReader::new(file),
            scans: Vec::new(),
            at: 0,
            sample: HostSample::default(),
            is_cut: false,
        };
        recording.check()?;
        recording.show(0)?;
        Ok(recording)
    }

    fn check(&mut self) -> Result<(), Failure> {
        let head = self.read_line(1)?;
        let head: RecordingHeader = (head.as_deref())
            .and_then(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| self.broken(1, "not a recording of hugeleaf top"))?;
        if head.hugeleaf_top != VERSION {
            let what = format!("written by hugeleaf {}, in another format", head.version);
            return Err(self.broken(1, what));
        }
        let mut number = 2;
        loop {
            let at = self.file.stream_position();
            let at = at.map_err(|why| unread(&self.path, &why))?;
            let Some(text) = self.read_line(number)? else {
                break;
            };
            let line = self.parse(&text, number)?;
            if self.scans.is_empty() && !line.whole {
                return Err(self.broken(number, "the first scan is incomplete"));
            }
            self.scans.push((at, line.whole));
            number += 1;
        }
        match self.scans.is_empty() {
            true => Err(self.broken(number, "there is no scan in it")),
            false => Ok(()),
        }
    }

    /// Returns the next line. `None` at the end, and at an unfinished line.
    fn read_line(&mut self, number: usize) -> Result<Option<String>, Failure> {
        let mut bytes = Vec::new();
        let mut file = self.file.by_ref().take(LONGEST);
        let read = file.read_until(b'\n', &mut bytes);
        read.map_err(|why| unread(&self.path, &why))?;
        if bytes.len() as u64 == LONGEST {
            return Err(self.broken(number, "the line is too long"));
        }
        if bytes.pop() != Some(b'\n') {
            self.is_cut |= !bytes.is_empty();
            return Ok(None);
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(self.broken(number, error)),
        }
    }

    fn parse(&self, text: &str, number: usize) -> Result<RecordLine<HostSample>, Failure> {
        // serde_json counts lines too, but there is only one.
        serde_json::from_str(text).map_err(|error| {
            let what = error.to_string().replace("at line 1 column", "at column");
            self.broken(number, what)
        })
    }

    fn broken(&self, line: usize, what: impl std::fmt::Display) -> Failure {
        Failure::missing(
            format!("{}: line {line}: {what}", self.path.display()),
            format!("{A_RECORDING}; to replay the lines before it: head -n LINES FILE"),
        )
    }

    pub fn scans(&self) -> usize {
        self.scans.len()
    }

    /// Goes to another sample. Past the end, shows the last one.
    pub fn show(&mut self, at: usize) -> Result<&HostSample, Failure> {
        let at = at.min(self.scans.len() - 1);
        // Starts from the last complete line or from the sample that is shown, whichever is nearer.
        let whole = (0..=at).rev().find(|n| self.scans[*n].1).unwrap_or(0);
        let from = match self.at < at && self.at >= whole && !self.sample.at.is_empty() {
            true => self.at + 1,
            false => whole,
        };
        for n in from..=at {
            let (offset, _) = self.scans[n];
            let seek = self.file.seek(SeekFrom::Start(offset));
            seek.map_err(|why| unread(&self.path, &why))?;
            let gone = || std::io::Error::from(ErrorKind::UnexpectedEof);
            let text = self
                .read_line(n + 2)?
                .ok_or_else(|| unread(&self.path, &gone()))?;
            let line = self.parse(&text, n + 2)?;
            apply(&mut self.sample, line);
        }
        self.at = at;
        Ok(&self.sample)
    }
}

/// Applies a line. Programs stay in the order of their PIDs.
fn apply(sample: &mut HostSample, line: RecordLine<HostSample>) {
    let mut programs = std::mem::take(&mut sample.programs);
    let new = line.sample.programs.clone();
    *sample = line.sample;
    if line.whole {
        return;
    }
    programs.retain(|p| line.gone.binary_search(&p.pid).is_err());
    for program in new {
        match programs.binary_search_by_key(&program.pid, |p| p.pid) {
            Ok(at) => programs[at] = program,
            Err(at) => programs.insert(at, program),
        }
    }
    sample.programs = programs;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{program, sample};
    use proptest::prelude::*;

    /// Returns a sample as a recording has it, without fields that are not written.
    fn plain(mut sample: HostSample) -> HostSample {
        for program in &mut sample.programs {
            program.pids.clear();
        }
        sample
    }

    /// Makes samples in which programs start, end, change and reuse PIDs.
    fn samples(count: usize) -> Vec<HostSample> {
        let mut sample = plain(sample());
        let mut all = Vec::new();
        for n in 0..count {
            sample.at = format!("2026-07-01T10:00:{n:02}+02:00");
            let pid = 5000 + u32::try_from(n % 7).unwrap();
            sample.programs.retain(|p| p.pid != pid);
            if n % 3 != 0 {
                let mut new = program(pid, "worker", 10, 20);
                new.start_ticks = n as u64;
                sample.programs.push(new);
            }
            sample.programs.sort_by_key(|p| p.pid);
            all.push(plain(sample.clone()));
        }
        all
    }

    fn written(samples: &[HostSample]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top.jsonl");
        let mut recorder = Recorder::create(&path).unwrap();
        for sample in samples {
            recorder.add(sample).unwrap();
        }
        assert_eq!(Bytes(recorder.length).get(), path.metadata().unwrap().len());
        (dir, path)
    }

    #[test]
    fn what_is_played_is_what_was_recorded() {
        let all = samples(3 * WHOLE_EVERY + 5);
        let (_dir, path) = written(&all);
        let mut recording = Recording::open(&path).unwrap();
        assert_eq!(recording.scans(), all.len());
        assert!(!recording.is_cut);
        for (n, sample) in all.iter().enumerate() {
            assert_eq!(recording.show(n).unwrap(), sample, "{n}");
        }
        for n in (0..all.len())
            .rev()
            .step_by(7)
            .chain([3, 150, 150, 2, 61, 60, 59])
        {
            assert_eq!(recording.show(n).unwrap(), &all[n], "{n}");
        }
        assert_eq!(recording.show(usize::MAX).unwrap(), all.last().unwrap());
    }

    #[test]
    fn a_host_where_nothing_happens_takes_little() {
        let mut one = plain(sample());
        one.programs = (1..1000).map(|pid| program(pid, "sleep", 1, 0)).collect();
        let (_dir, path) = written(&vec![one.clone(); WHOLE_EVERY]);
        let (_dir, first) = written(&[one]);
        let length = |path: &Path| path.metadata().unwrap().len();
        assert!(length(&path) < length(&first) + 1000 * WHOLE_EVERY as u64);
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let (_dir, path) = written(&samples(1));
        let before = std::fs::read(&path).unwrap();
        assert_eq!(Recorder::create(&path).unwrap_err().remedy, NEW_FILE);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn it_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top.jsonl");
        let mut recorder = Recorder::create(&path).unwrap();
        recorder.most = Bytes(20_000);
        let all = samples(40);
        let error = all.iter().find_map(|s| recorder.add(s).err()).unwrap();
        assert!(
            error
                .to_string()
                .ends_with("is reached; the recording ends here")
        );
        assert!(path.metadata().unwrap().len() <= 20_000);
        assert!(Recording::open(&path).unwrap().scans() > 2);
    }

    #[test]
    fn a_full_disk_ends_it() {
        let (_dir, path) = written(&samples(3));
        let mut recorder = Recorder {
            path: "/dev/full".into(),
            file: OpenOptions::new().append(true).open("/dev/full").unwrap(),
            length: 0,
            most: MOST,
            scans: 0,
            before: HashMap::new(),
        };
        let error = recorder.add(&samples(1)[0]).unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(Recording::open(&path).unwrap().scans(), 3);
    }

    #[test]
    fn wherever_it_is_cut_it_ends_before() {
        let all = samples(4);
        let (dir, path) = written(&all);
        let bytes = std::fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
        let cut = dir.path().join("cut");
        for length in (0..bytes.len())
            .step_by(97)
            .chain(ends.iter().map(|at| at + 1))
        {
            std::fs::write(&cut, &bytes[..length]).unwrap();
            let lines = ends.iter().filter(|at| **at < length).count();
            match Recording::open(&cut) {
                Ok(mut recording) => {
                    assert_eq!(recording.scans(), lines - 1);
                    assert_eq!(recording.is_cut, bytes[length - 1] != b'\n');
                    assert_eq!(recording.show(99).unwrap(), &all[lines - 2]);
                }
                Err(error) => assert!(lines < 2, "{error}"),
            }
        }
    }

    #[test]
    fn what_is_broken_is_named_with_its_line() {
        let (dir, path) = written(&samples(4));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let with = |at: usize, line: &str| {
            let mut lines = lines.clone();
            lines[at] = line;
            lines.join("\n") + "\n"
        };
        for (text, says) in [
            (String::new(), "line 1: not a recording"),
            ("not json\n".into(), "line 1: not a recording"),
            (
                with(0, "{\"hugeleaf_top\":2,\"version\":\"9.1\"}"),
                "line 1: written by hugeleaf 9.1",
            ),
            (with(0, "{}"), "line 1: not a recording"),
            (with(1, lines[2]), "line 2: the first scan is incomplete"),
            (with(3, "{\"sample\":3}"), "line 4: invalid type"),
            (with(3, ""), "line 4: EOF"),
            (format!("{}\n", lines[0]), "line 2: there is no scan"),
        ] {
            let path = dir.path().join("broken");
            std::fs::write(&path, text).unwrap();
            let error = Recording::open(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let missing = Recording::open(&dir.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
        assert!(Recording::open(dir.path()).is_err());
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "(?s).*", at in 0usize..5) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("r");
            let all = samples(4);
            let mut text = String::from("{\"hugeleaf_top\":1,\"version\":\"0\"}\n");
            for (n, sample) in all.iter().enumerate() {
                if n == at {
                    text += &line;
                }
                text += &line_of(&RecordLine { whole: true, gone: vec![], sample });
            }
            std::fs::write(&path, text).unwrap();
            let _ = Recording::open(&path);
        }
    }
}
