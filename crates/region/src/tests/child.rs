//! Test parts in a process of their own: this test program, started again with a word that names
//! the part. Its assertions fail its test. It reports progress in lines that begin with `@`, and
//! waits for lines from the test.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// Environment variable of a child: its part and arguments.
const MARK: &str = "HUGELEAF_TEST_PART";

/// Arguments of a part.
pub struct Words(Vec<String>);

impl Words {
    pub fn get(&self, n: usize) -> &str {
        &self.0[n]
    }

    pub fn number(&self, n: usize) -> u64 {
        self.0[n].parse().unwrap()
    }
}

/// Sends a line to the test.
pub fn say(line: &str) {
    println!("@ {line}");
}

/// Waits for a line from the test and returns it.
pub fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The test's side of a child; the child is killed on drop.
pub struct Part {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Part {
    pub fn start(part: &str, words: &[&str]) -> Part {
        // This path works even if the file was rebuilt since.
        Part::start_by(&mut Command::new("/proc/self/exe"), part, words)
    }

    /// Starts a part by a command that executes this program with the arguments appended.
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

    /// Waits for the next line; `None` if the child has ended.
    pub fn next_line(&mut self) -> Option<String> {
        for line in &mut self.lines {
            // The test harness may have started the line.
            if let Some((_, answer)) = line.unwrap().split_once("@ ") {
                return Some(answer.to_owned());
            }
        }
        None
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Waits for the child to end.
    pub fn wait(&mut self) -> ExitStatus {
        while self.next_line().is_some() {}
        self.child.wait().unwrap()
    }

    /// Waits for the child to end, and panics if it failed.
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

/// Entry point of a child, and not a test. It does nothing unless started as a child.
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
