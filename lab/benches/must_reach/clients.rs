//! Clients that send requests without pause, and record the time and the duration of each answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::Failed;

/// One operation of a client; returns the number of server operations in it.
pub type Operation = Box<dyn FnMut() -> Result<u32, String>>;

/// An answer.
#[derive(Clone, Copy)]
struct Answer {
    at_seconds: f64,
    took_seconds: f32,
    operations: u32,
}

/// Running clients; stopped when dropped.
pub struct Clients {
    start: Instant,
    stop: Arc<AtomicBool>,
    answers: Vec<Arc<Mutex<Vec<Answer>>>>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Clients {
    /// Starts `count` clients, each with its own connection.
    pub fn start<C>(count: usize, connect: C) -> Clients
    where
        C: Fn(u64) -> Result<Operation, String> + Clone + Send + 'static,
    {
        let start = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = Clients {
            start,
            stop: Arc::clone(&stop),
            answers: Vec::new(),
            threads: Vec::new(),
        };
        for number in 0..count {
            let answers = Arc::new(Mutex::new(Vec::new()));
            clients.answers.push(Arc::clone(&answers));
            let (stop, connect) = (Arc::clone(&stop), connect.clone());
            clients.threads.push(std::thread::spawn(move || {
                let mut operation = connect(number as u64 + 1)?;
                while !stop.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    let operations = operation()?;
                    let answer = Answer {
                        at_seconds: start.elapsed().as_secs_f64(),
                        took_seconds: before.elapsed().as_secs_f32(),
                        operations,
                    };
                    answers
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(answer);
                }
                Ok(())
            }));
        }
        clients
    }

    /// Returns the seconds since their start.
    pub fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Stops the clients and returns their answers.
    pub fn end(mut self) -> Result<Log, Failed> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a client panicked")??;
        }
        let mut answers = Vec::new();
        for own in &self.answers {
            answers.extend_from_slice(&own.lock().unwrap_or_else(PoisonError::into_inner));
        }
        answers.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
        Ok(Log { answers })
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Length of a bucket of [`Interval::rates`].
pub const BUCKET_SECONDS: f64 = 0.1;

/// All answers of all clients.
pub struct Log {
    answers: Vec<Answer>,
}

/// Results of one interval.
pub struct Interval {
    /// Operations a second, bucket by bucket.
    pub rates: Vec<f64>,
    /// 99th percentile of a client's wait for an answer.
    pub p99_seconds: f64,
    /// Longest wait of a client.
    pub longest_seconds: f64,
}

impl Log {
    /// Returns the results between two times, in seconds since the clients' start; whole buckets
    /// only.
    pub fn interval(&self, from: f64, to: f64) -> Interval {
        let count = ((to - from) / BUCKET_SECONDS).floor().max(1.0);
        #[allow(clippy::cast_possible_truncation)] // small and positive
        let mut rates = vec![0.0; count as usize];
        let mut waits = Vec::new();
        for answer in &self.answers {
            let past = answer.at_seconds - from;
            #[allow(clippy::cast_possible_truncation)] // checked below
            let bucket = (past / BUCKET_SECONDS) as usize;
            if past >= 0.0 && bucket < rates.len() {
                rates[bucket] += f64::from(answer.operations) / BUCKET_SECONDS;
                waits.push(f64::from(answer.took_seconds));
            }
        }
        waits.sort_by(f64::total_cmp);
        let at = |part: usize| waits.get(waits.len() * part / 1000).copied();
        Interval {
            rates,
            p99_seconds: at(990).unwrap_or(f64::NAN),
            longest_seconds: waits.last().copied().unwrap_or(f64::NAN),
        }
    }
}

impl Interval {
    /// Returns the mean rate over the worst `seconds` in a row.
    pub fn worst(&self, seconds: f64) -> f64 {
        #[allow(clippy::cast_possible_truncation)] // small and positive
        let window = ((seconds / BUCKET_SECONDS).round() as usize).clamp(1, self.rates.len());
        self.rates
            .windows(window)
            .map(|w| w.iter().sum::<f64>() / w.len() as f64)
            .fold(f64::INFINITY, f64::min)
    }
}
