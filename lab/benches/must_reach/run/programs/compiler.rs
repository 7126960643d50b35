//! A compiler: short, its text is large, and little of its memory is used for long.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use hugeleaf_units::Bytes;

use super::{Made, Need, Program, Taken};
use crate::run::arms::{Arm, ours};
use crate::run::host::Host;
use crate::run::{Workshop, done};
use crate::support::find_program;
use crate::{Failed, Mode};

const COMPILE: &str = "compile, files/s";

struct Compiler {
    program: PathBuf,
    source: PathBuf,
    _workshop: Workshop,
}

/// g++ on one large file.
pub fn compiler(mode: Mode) -> Result<Made, Failed> {
    let Some(program) = find_program(&["g++"]) else {
        return Ok(Err("needs g++"));
    };
    let workshop = Workshop::new()?;
    let parts = match mode {
        Mode::Full => 14,
        Mode::Smoke => 2,
    };
    let source = workshop.file("large.cc", &source(parts))?;
    Ok(Ok(Box::new(Compiler {
        program,
        source,
        _workshop: workshop,
    })))
}

/// A file that makes templates of templates, each part with types of its own.
fn source(parts: usize) -> String {
    let mut text = String::from(
        "#include <algorithm>\n#include <functional>\n#include <map>\n#include <string>\n\
         #include <unordered_map>\n#include <vector>\n",
    );
    for n in 0..parts {
        let _ = write!(
            text,
            "struct key{n} {{ int a; std::string b;\n\
             \x20 bool operator<(const key{n}& o) const {{ return a < o.a || (a == o.a && b < o.b); }} }};\n\
             template <class T> struct tree{n} {{ std::map<key{n}, std::vector<T>> all;\n\
             \x20 void add(int a, T t) {{ all[key{n}{{a, std::to_string(a)}}].push_back(std::move(t)); }}\n\
             \x20 long sum(std::function<long(const T&)> f) const {{ long s = 0;\n\
             \x20   for (auto& [k, v] : all) for (auto& t : v) s += f(t) + k.a; return s; }} }};\n\
             long work{n}(int c) {{ tree{n}<std::string> t; tree{n}<std::vector<int>> u;\n\
             \x20 std::unordered_map<std::string, tree{n}<long>> m;\n\
             \x20 for (int i = 0; i < c; i++) {{ t.add(i % 7, std::string(i, 'x')); u.add(i, {{i, c}}); m[\"k\"].add(i, i); }}\n\
             \x20 std::vector<key{n}> k; for (auto& e : u.all) k.push_back(e.first);\n\
             \x20 std::sort(k.begin(), k.end());\n\
             \x20 return t.sum([](auto& s) {{ return (long)s.size(); }}) + u.sum([](auto& v) {{ return (long)v[0]; }}) + k.size(); }}\n"
        );
    }
    text
}

impl Program for Compiler {
    fn name(&self) -> &'static str {
        "compiler"
    }

    fn file(&self) -> &'static str {
        "run-compiler"
    }

    fn need(&self) -> Need {
        Need {
            all: Bytes::from_mib(512),
            shared: Bytes::ZERO,
        }
    }

    fn rounds(&self) -> usize {
        20
    }

    fn shares(&self) -> &'static [&'static str] {
        &[]
    }

    fn rates(&self) -> &'static [&'static str] {
        &[COMPILE]
    }

    fn arms(&self, host: &Host) -> Vec<Arm> {
        ours(host, false)
    }

    fn sample(&self, arm: &Arm) -> Result<Taken, Failed> {
        let mut command: Command = arm.command(&self.program.to_string_lossy());
        let object = self.source.with_extension("o");
        command.args(["-std=c++17", "-O1", "-c", "-o"]).arg(&object);
        let start = Instant::now();
        done(command.arg(&self.source))?;
        let seconds = start.elapsed().as_secs_f64();
        let mut taken = Taken::default();
        taken.rate(COMPILE, 1.0 / seconds);
        taken.check = std::fs::metadata(object)?.len().to_string();
        Ok(taken)
    }
}
