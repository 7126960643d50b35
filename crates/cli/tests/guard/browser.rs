//! Tests the guard's page in a real browser over WebDriver (W3C): loading, refresh, clicks and keyboard, in light and dark mode.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::kit::{Guarding, Place, Worker, can_run, free_port, rule};
use crate::common::{ChildGuard, good, not_run, wait_until};

/// The key of an element in WebDriver's answers (W3C WebDriver, 12.1).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A headless browser with its driver.
struct Browser {
    session: String,
    _driver: ChildGuard,
    _profile: tempfile::TempDir,
}

fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let files =
        std::env::split_paths(&path).flat_map(|folder| names.iter().map(move |n| folder.join(n)));
    files.into_iter().find(|file| file.is_file())
}

impl Browser {
    /// Starts both; `None` if either is not installed.
    fn start(dark: bool) -> Option<Browser> {
        let driver = installed(&["chromedriver"])?;
        let chromium = installed(&["chromium", "chromium-browser"])?;
        let port = free_port();
        let child = Command::new(driver)
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let driver = ChildGuard(child);
        let address = format!("http://127.0.0.1:{port}");
        let profile = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1000,900",
        ]
        .map(str::to_owned)
        .to_vec();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        if dark {
            args.push("--blink-settings=preferredColorScheme=0".into());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": args },
        } } });
        wait_until("the driver listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let answer = post(&format!("{address}/session"), &wanted);
        let id = answer["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned();
        Some(Browser {
            session: format!("{address}/session/{id}"),
            _driver: driver,
            _profile: profile,
        })
    }

    fn post(&self, what: &str, body: &Value) -> Value {
        post(&format!("{}/{what}", self.session), body)
    }

    fn go(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// Sets the width of the window, also below the minimum of a desktop.
    fn set_width(&self, width: u32) {
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics });
        self.post("goog/cdp/execute", &command);
    }

    /// Returns the value of a script.
    fn eval(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    fn text(&self) -> String {
        self.eval("return document.body.innerText")
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    fn click(&self, selector: &str) {
        let element = self.post(
            "element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let id = element[ELEMENT]
            .as_str()
            .unwrap_or_else(|| panic!("{selector}: {element}"));
        self.post(&format!("element/{id}/click"), &json!({}));
    }

    fn key(&self, key: &str) {
        self.post(
            "actions",
            &json!({ "actions": [{ "type": "key", "id": "k", "actions": [
                { "type": "keyDown", "value": key }, { "type": "keyUp", "value": key },
            ] }] }),
        );
    }

    /// Saves a screenshot for inspection if the environment requests it.
    fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("HUGELEAF_PICTURES") else {
            return;
        };
        let shot = get(&format!("{}/screenshot", self.session));
        let bytes = decoded(shot.as_str().unwrap_or_default());
        std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), bytes).unwrap();
    }

    fn background(&self) -> String {
        let said = self.eval("return getComputedStyle(document.body).backgroundColor");
        said.as_str().unwrap_or_default().to_owned()
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let text = self.text();
            if holds(&text) {
                return;
            }
            assert!(
                start.elapsed() < hugeleaf_testkit::PATIENCE,
                "never: {what}\n{text}"
            );
            hugeleaf_testkit::pause(
                Duration::from_millis(200),
                "the rate of questions to the browser",
            );
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = ureq::delete(&self.session).call();
    }
}

fn value(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Value {
    let text = answer.unwrap().body_mut().read_to_string().unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let value = all["value"].clone();
    assert!(value["error"].is_null(), "{value}");
    value
}

fn post(url: &str, body: &Value) -> Value {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .new_agent();
    value(
        agent
            .post(url)
            .header("content-type", "application/json")
            .send(body.to_string()),
    )
}

fn get(url: &str) -> Value {
    value(ureq::get(url).call())
}

/// Decodes base64 (RFC 4648), the format of screenshots.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(digit).collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let bits = four
            .iter()
            .enumerate()
            .fold(0u32, |bits, (n, d)| bits | u32::from(*d) << (18 - 6 * n));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[test]
#[expect(clippy::too_many_lines, reason = "one session")]
fn the_page_in_a_browser() {
    let test = "the_page_in_a_browser";
    if hugeleaf_testkit::left_to_all(test) {
        return;
    }
    let Some(_host) = can_run(test) else { return };
    let Some(light) = Browser::start(false) else {
        return not_run(test, "chromium and chromedriver are not installed");
    };
    let place = Place::new();
    let port = free_port();
    let counter = place.path("counter");
    let mut worker = Worker::start(&place, "browsed", &counter, 1.3);
    worker.tell("grow 100");
    let proof = format!(
        "metric = 'cmd:cat {counter}'\nprove = {{ pairs = 8, every = '7d', over = '0s', interval = '300ms' }}"
    );
    let rules = super::kit::listening(&rule("browsed", &proof), &format!("127.0.0.1:{port}"));
    let guard = Guarding::start(&place, &rules);
    let home = format!("http://127.0.0.1:{port}/");
    light.go(&home);
    light.wait_for("the program is there", |text| text.contains("browsed"));
    // The page refreshes without a reload.
    light.eval("window.kept = true");
    light.wait_for("it is kept", |text| text.contains("% faster"));
    assert_eq!(
        light.eval("return window.kept"),
        true,
        "it was renewed, not loaded again"
    );
    good(&guard.ask(&["pause"]).output().unwrap());
    light.wait_for("the pause shows", |text| text.contains("Paused since"));
    light.picture("guard-overview-light");
    // Navigation by clicks.
    light.click("nav a[href='/decisions']");
    light.wait_for("decisions", |text| {
        text.contains("promoted") && text.contains("100M of 100M")
    });
    light.picture("guard-decisions-light");
    light.click("nav a[href='/proofs']");
    light.wait_for("proofs", |text| {
        text.contains("faster") && text.contains("kept")
    });
    light.picture("guard-proofs-light");
    // By keyboard: the first Tab reaches the first link, Enter follows it.
    light.key("\u{e004}");
    let focused = light.eval("return document.activeElement.getAttribute('href')");
    assert_eq!(focused, "/");
    light.key("\u{e007}");
    light.wait_for("the overview", |text| text.contains("PROCESS TREES"));
    light.click(&format!("nav a[href='/program/{}']", worker.pid()));
    light.wait_for("the program", |text| text.contains("Coverage over time"));
    light.picture("guard-program-light");
    assert_eq!(light.background(), "rgb(255, 255, 255)");
    // Nothing is loaded from other origins, and no error occurred.
    let loaded = light.eval("return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin))");
    assert_eq!(loaded, json!([]));
    // Even on a narrow screen, the page is not wider than the window, and the text of a chart is readable.
    for width in [1000, 390] {
        light.set_width(width);
        let seen = light.eval(
            "const text = document.querySelector('.chart text');
             const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
             return [innerWidth, document.documentElement.scrollWidth <= innerWidth, size >= 11]",
        );
        assert_eq!(seen, json!([width, true, true]));
    }
    light.picture("guard-program-narrow");
    let dark = Browser::start(true).unwrap();
    dark.go(&home);
    dark.wait_for("the program is there", |text| text.contains("browsed"));
    assert_ne!(
        dark.background(),
        "rgb(255, 255, 255)",
        "it follows the reader's scheme"
    );
    dark.picture("guard-overview-dark");
    dark.go(&format!("{home}program/{}", worker.pid()));
    dark.picture("guard-program-dark");
    // After the guard ends, the page stays and marks itself as stale.
    guard.end();
    dark.wait_for("it is stale", |_| {
        dark.eval("return document.body.classList.contains('stale')") == true
    });
    dark.picture("guard-stale-dark");
    worker.tell("");
}
