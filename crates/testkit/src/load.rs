//! Load on a server: a few clients that check every answer, at a bounded rate, so that a small
//! machine stays usable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// One transaction of a client; the error describes the wrong answer.
pub type TransactionFn = Box<dyn FnMut() -> Result<(), String>>;

/// Running clients, stopped when dropped.
pub struct LoadClients {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

impl LoadClients {
    /// Starts clients; each opens its own connection and then repeats its transaction.
    pub fn start(
        clients: usize,
        connect: impl Fn(usize) -> Result<TransactionFn, String> + Send + Sync + 'static,
    ) -> LoadClients {
        let mut load = LoadClients {
            stop: Arc::default(),
            done: Arc::default(),
            failures: Arc::default(),
            clients: Vec::new(),
        };
        let connect = Arc::new(connect);
        for number in 0..clients {
            let (stop, done, failures) = (
                Arc::clone(&load.stop),
                Arc::clone(&load.done),
                Arc::clone(&load.failures),
            );
            let connect = Arc::clone(&connect);
            load.clients.push(std::thread::spawn(move || {
                let result = connect(number).and_then(|work| repeat(work, &stop, &done));
                if let Err(failure) = result {
                    failures.lock().unwrap().push(failure);
                }
            }));
        }
        load
    }

    /// Fails if a transaction has failed, or if none was done since the last call.
    #[track_caller]
    pub fn assert_healthy(&self) {
        let failures = self.failures.lock().unwrap();
        assert!(failures.is_empty(), "failed transactions: {failures:?}");
        drop(failures);
        let before = self.done.load(Ordering::Relaxed);
        crate::until("the load goes on", || {
            self.done.load(Ordering::Relaxed) > before
        });
    }

    /// Stops the clients, and fails if any transaction failed. Returns the number of transactions.
    #[track_caller]
    pub fn end(mut self) -> u64 {
        self.halt();
        let failures = self.failures.lock().unwrap();
        assert!(failures.is_empty(), "failed transactions: {failures:?}");
        self.done.load(Ordering::Relaxed)
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            if client.join().is_err() {
                let mut failures = self.failures.lock().unwrap_or_else(|e| e.into_inner());
                failures.push("a client panicked".to_owned());
            }
        }
    }
}

impl Drop for LoadClients {
    fn drop(&mut self) {
        self.halt();
    }
}

fn repeat(mut work: TransactionFn, stop: &AtomicBool, done: &AtomicU64) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        work()?;
        done.fetch_add(1, Ordering::Relaxed);
        crate::pause(Duration::from_micros(200), "bounds the rate");
    }
    Ok(())
}
