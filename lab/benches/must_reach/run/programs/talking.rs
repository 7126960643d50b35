//! Programs that grow, say that they are ready, and work when they are told to.

use std::path::PathBuf;

use hugeleaf_units::Bytes;

use super::{GROW, Made, Need, Program, Taken, WORK};
use crate::run::arms::Arm;
use crate::run::talk::{Talk, after, value};
use crate::run::{Workshop, done, look};
use crate::support::find_program;
use crate::{Failed, Mode};

/// Such a program.
struct Talking {
    name: &'static str,
    file: &'static str,
    all: Bytes,
    program: PathBuf,
    arguments: Vec<String>,
    /// The line that it is sent first, and the one once it is ready.
    tell: [String; 2],
    /// How rates are read from what it says; the protocol's own where there is none.
    timer: Option<Timer>,
    /// Holds its files.
    _workshop: Workshop,
}

/// Operations of both phases of a program that says how long each took.
struct Timer {
    operations: [u32; 2],
    prefix: &'static str,
}

impl Timer {
    fn rate(&self, said: &[String], phase: usize) -> Result<f64, Failed> {
        let text = after(said, self.prefix).ok_or_else(|| format!("no time in {said:?}"))?;
        let seconds: f64 = text.split_whitespace().next().unwrap_or_default().parse()?;
        Ok(f64::from(self.operations[phase]) / seconds)
    }
}

impl Program for Talking {
    fn name(&self) -> &'static str {
        self.name
    }

    fn file(&self) -> &'static str {
        self.file
    }

    fn need(&self) -> Need {
        Need {
            all: self.all,
            shared: Bytes::ZERO,
        }
    }

    fn sample(&self, arm: &Arm) -> Result<Taken, Failed> {
        let mut command = arm.command(&self.program.to_string_lossy());
        let mut talk = Talk::start(command.args(&self.arguments))?;
        talk.tell(&self.tell[0])?;
        let mut said = talk.until_ready()?;
        let mut taken = Taken::default();
        arm.grown(talk.pid())?;
        taken.private(look::look(talk.pid())?);
        taken.resident(talk.pid())?;
        let grow = match &self.timer {
            Some(timer) => timer.rate(&said, 0)?,
            None => value(&said, "rate grow")?,
        };
        taken.rate(GROW, grow);
        talk.tell(&self.tell[1])?;
        said = talk.until_end()?;
        let work = match &self.timer {
            Some(timer) => timer.rate(&said, 1)?,
            None => value(&said, "rate work")?,
        };
        taken.rate(WORK, work);
        taken.check = after(&said, "check").ok_or("no result")?.to_owned();
        Ok(taken)
    }
}

/// A program under malloc with chunks of all sizes.
pub fn chunks(mode: Mode, threads: u32) -> Result<Made, Failed> {
    let workshop = Workshop::new()?;
    let Some(program) = workshop.compile("chunks", include_str!("../chunks.c"))? else {
        return Ok(Err("needs a C compiler"));
    };
    let (total, changes, reads) = match mode {
        Mode::Full => (Bytes::from_mib(1024), "2000000", "8000000"),
        Mode::Smoke => (Bytes::from_mib(32), "20000", "100000"),
    };
    let (name, file) = match threads {
        1 => ("chunks", "run-chunks"),
        _ => ("chunks-threads", "run-chunks-threads"),
    };
    Ok(Ok(Box::new(Talking {
        name,
        file,
        // Each thread has a chunk of the largest size, however small its share.
        all: Bytes(total.get() + total.get() / 2),
        program,
        arguments: vec![
            total.get().to_string(),
            threads.to_string(),
            changes.to_owned(),
            reads.to_owned(),
        ],
        tell: [String::new(), "\n".to_owned()],
        timer: None,
        _workshop: workshop,
    })))
}

/// Python with small objects.
pub fn python(mode: Mode) -> Result<Made, Failed> {
    // The distribution's: what another one on PATH was built with is not known.
    let Some(program) = find_program(&["/usr/bin/python3", "python3"]) else {
        return Ok(Err("needs python3"));
    };
    let workshop = Workshop::new()?;
    let script = workshop.file("objects.py", include_str!("../objects.py"))?;
    let (objects, lookups) = match mode {
        Mode::Full => ("1300000", "1000000"),
        Mode::Smoke => ("50000", "20000"),
    };
    Ok(Ok(Box::new(Talking {
        name: "python",
        file: "run-python",
        all: Bytes::from_mib(if mode == Mode::Full { 1100 } else { 64 }),
        program,
        arguments: vec![
            script.to_string_lossy().into_owned(),
            objects.to_owned(),
            lookups.to_owned(),
        ],
        tell: [String::new(), "\n".to_owned()],
        timer: None,
        _workshop: workshop,
    })))
}

/// SQLite's shell with a database in memory.
pub fn sqlite(mode: Mode) -> Result<Made, Failed> {
    let Some(program) = find_program(&["sqlite3"]) else {
        return Ok(Err("needs sqlite3"));
    };
    let (rows, reads) = match mode {
        Mode::Full => (2_200_000u32, 1_000_000u32),
        Mode::Smoke => (100_000, 20_000),
    };
    let fill = |text: &str| {
        text.replace("@ROWS@", &rows.to_string())
            .replace("@READS@", &reads.to_string())
    };
    Ok(Ok(Box::new(Talking {
        name: "sqlite",
        file: "run-sqlite",
        all: Bytes::from_mib(if mode == Mode::Full { 1100 } else { 64 }),
        program,
        arguments: vec![":memory:".to_owned()],
        tell: [
            fill(include_str!("../keyed-build.sql")),
            fill(include_str!("../keyed-read.sql")),
        ],
        timer: Some(Timer {
            operations: [rows, reads],
            prefix: "Run Time: real",
        }),
        _workshop: Workshop::new()?,
    })))
}

/// A JVM with a heap in use.
pub fn jvm(mode: Mode) -> Result<Made, Failed> {
    let (Some(compiler), Some(java)) = (find_program(&["javac"]), find_program(&["java"])) else {
        return Ok(Err("needs a JDK"));
    };
    let workshop = Workshop::new()?;
    let source = workshop.file("Objects.java", include_str!("../Objects.java"))?;
    let mut compile = std::process::Command::new(compiler);
    done(compile.arg("-d").arg(workshop.path()).arg(source))?;
    let (live, most, lookups) = match mode {
        Mode::Full => (Bytes::from_mib(2048), "-Xmx3g", "6000000"),
        Mode::Smoke => (Bytes::from_mib(64), "-Xmx256m", "100000"),
    };
    Ok(Ok(Box::new(Talking {
        name: "jvm",
        file: "run-jvm",
        // Garbage comes on top.
        all: Bytes(live.get() + live.get() / 2),
        program: java,
        arguments: vec![
            most.to_owned(),
            "-cp".to_owned(),
            workshop.path().to_string_lossy().into_owned(),
            "Objects".to_owned(),
            live.get().to_string(),
            lookups.to_owned(),
        ],
        tell: [String::new(), "\n".to_owned()],
        timer: None,
        _workshop: workshop,
    })))
}
