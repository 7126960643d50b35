//! Statements of a MySQL or MariaDB server.
//!
//! The default counts `Questions`: statements that clients sent, whatever they do and however
//! transactions are drawn around them. `Com_commit` and `Com_rollback` count explicit transactions
//! only, so under autocommit they stand still; who runs explicit ones names them:
//! `mysql:DSN#Com_commit+Com_rollback`.

use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};

use super::shown::without;
use super::{Kind, Metric, MetricError, Reading};
use crate::stats::Better;

const PATIENCE: Duration = Duration::from_secs(10);

/// `mysql:DSN[#VARIABLE+…]`: status variables of the server less those of its own session.
pub struct Mysql {
    connection: Conn,
    name: String,
    variables: Vec<String>,
}

impl Mysql {
    /// Connects.
    ///
    /// # Errors
    /// [`MetricError::Unreachable`].
    pub fn connect(url: &str, variables: &[String]) -> Result<Mysql, MetricError> {
        let name = super::shown::mysql(url);
        // The parser's own words may hold a part of the password.
        let unread = |_| unreachable(&name, "this is no address".to_owned());
        let options = Opts::from_url(url).map_err(unread)?;
        let secret = options.get_pass().map(str::to_owned);
        let options = OptsBuilder::from_opts(options)
            .tcp_connect_timeout(Some(PATIENCE))
            .read_timeout(Some(PATIENCE))
            .write_timeout(Some(PATIENCE));
        let connection = Conn::new(options)
            .map_err(|e| unreachable(&name, without(&e.to_string(), secret.as_deref())))?;
        Ok(Mysql {
            connection,
            name,
            variables: variables.to_vec(),
        })
    }

    /// The sum of the variables of one scope, `GLOBAL` or `SESSION`.
    fn sum(&mut self, scope: &str) -> Result<f64, MetricError> {
        let names: Vec<String> = self.variables.iter().map(|v| format!("'{v}'")).collect();
        let query = format!(
            "SHOW {scope} STATUS WHERE Variable_name IN ({})",
            names.join(",")
        );
        let rows: Vec<(String, String)> = self
            .connection
            .query(query)
            .map_err(|e| unreachable(&self.name, e.to_string()))?;
        let garbage = |what: String| MetricError::Garbage {
            metric: self.name.clone(),
            what,
            next: "see which there are: mysql -e 'SHOW GLOBAL STATUS'".into(),
        };
        if rows.len() != self.variables.len() {
            let names = self.variables.join(", ");
            return Err(garbage(format!("the server lacks a variable of {names}")));
        }
        let mut sum = 0.0;
        for (name, value) in rows {
            let value: f64 = value
                .parse()
                .map_err(|_| garbage(format!("{name} is {value:?}, not a number")))?;
            sum += value;
        }
        Ok(sum)
    }
}

fn unreachable(name: &str, reason: String) -> MetricError {
    MetricError::Unreachable {
        metric: name.to_owned(),
        reason: reason.replace('\n', " "),
        next: "try it by hand: mysql -h HOST -u USER -p -e 'SHOW GLOBAL STATUS'; \
               an address is mysql://USER:PASSWORD@HOST:PORT or /path/to.sock"
            .into(),
    }
}

impl Metric for Mysql {
    fn name(&self) -> String {
        match self.variables.as_slice() {
            [one] if one == "Questions" => self.name.clone(),
            several => format!("{}#{}", self.name, several.join("+")),
        }
    }

    fn unit(&self) -> String {
        match self.variables.as_slice() {
            [one] if one == "Questions" => "statements/s".into(),
            _ => "1/s".into(),
        }
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn kind(&self) -> Kind {
        Kind::Counter
    }

    /// The session's own share is asked for right behind the server's sum: both hold every
    /// statement of this connection but a constant number, which a difference takes away.
    fn read(&mut self) -> Result<Reading, MetricError> {
        let all = self.sum("GLOBAL")?;
        let own = self.sum("SESSION")?;
        Ok(Reading::Counter(all - own))
    }
}
