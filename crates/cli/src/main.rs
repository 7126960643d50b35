//! The program `hugeleaf`.

fn main() -> std::process::ExitCode {
    hugeleaf_cli::run()
}
