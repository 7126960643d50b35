//! A part that a process of its own plays: this test program started again, with one word that
//! says which part. What it asserts is asserted; it tells how far it is in lines that begin with
//! `@`, and goes on when it is sent a line.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// Set in the environment of a child: its part, and words of its own.
const MARK: &str = "HUGELEAF_TEST_PART";

/// What a part is given.
pub struct Words(Vec<String>);

impl Words {
    pub fn get(&self, n: usize) -> &str {
        &self.0[n]
    }

    pub fn number(&self, n: usize) -> u64 {
        self.0[n].parse().unwrap()
    }
}

/// Tells the test something.
pub fn say(line: &str) {
    println!("@ {line}");
}

/// Waits until the test says to go on; its line.
pub fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The test's end of a child; killed when dropped.
pub struct Part {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Part {
    pub fn start(part: &str, words: &[&str]) -> Part {
        // By this name also where the file has been built anew since.
        Part::start_by(&mut Command::new("/proc/self/exe"), part, words)
    }

    /// By a command that executes this program with the arguments that follow.
    pub fn start_by(command: &mut Command, part: &str, words: &[&str]) -> Part {
        let mut child = command
            .args(["--exact", "tests::child::plays_its_part", "--nocapture"])
            .env(MARK, [&[part][..], words].concat().join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Part {
            child,
            input,
            lines,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its next line; `None` where it has ended.
    pub fn next_line(&mut self) -> Option<String> {
        for line in &mut self.lines {
            // The test harness may have begun the line.
            if let Some((_, answer)) = line.unwrap().split_once("@ ") {
                return Some(answer.to_owned());
            }
        }
        None
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        while self.next_line().is_some() {}
        self.child.wait().unwrap()
    }

    /// Waits until it has ended, and fails where it has.
    pub fn succeed(mut self) {
        let status = self.wait();
        assert!(status.success(), "the child: {status}");
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

/// No test: what a child does. Does nothing unless it was started as one.
#[test]
fn plays_its_part() {
    let Ok(words) = std::env::var(MARK) else {
        return;
    };
    let mut words = words.split(' ').map(str::to_owned);
    let part = words.next().unwrap();
    let words = Words(words.collect());
    let play: fn(&Words) = match part.as_str() {
        "elastic" => super::elastic_processes::part,
        "elastic_faults" => super::elastic_faults::part,
        "elastic_fork" => super::elastic_processes::fork,
        "faults" => super::faults::part,
        "few_threads" => super::limits::few_threads,
        "fork" => super::fork::part,
        "grow" => super::race::grow,
        "inherit" => super::handle::inherit,
        "locked" => super::limits::locked,
        "send" => super::handle::send,
        "within_cgroup" => super::limits::within_cgroup,
        other => panic!("no part {other}"),
    };
    play(&words);
    std::process::exit(0);
}
