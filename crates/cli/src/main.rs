//! The `hugeleaf` program.

fn main() -> std::process::ExitCode {
    hugeleaf_cli::run()
}
