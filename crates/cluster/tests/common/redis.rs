//! A client of Redis's protocol that shows answers as text.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// One connection.
pub(crate) struct Redis {
    stream: BufReader<UnixStream>,
}

impl Redis {
    pub(crate) fn connect(socket: &Path) -> Redis {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Redis { stream: BufReader::new(stream) }
    }

    /// Asks in words.
    pub(crate) fn ask(&mut self, words: &str) -> String {
        self.ask_parts(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    pub(crate) fn ask_parts(&mut self, parts: &[&[u8]]) -> String {
        self.send(&[parts]);
        self.answer()
    }

    /// Writes commands together.
    pub(crate) fn send(&mut self, commands: &[&[&[u8]]]) {
        let mut bytes = Vec::new();
        for parts in commands {
            bytes.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
            for part in *parts {
                bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
                bytes.extend_from_slice(part);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
    }

    /// Whether the server has ended the connection.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]))
    }

    /// The next answer: `OK`, `-ERR …`, `:1`, `nil`, `[a, [b, c]]`.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        assert!(!line.is_empty(), "the connection ended");
        let (sign, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        match sign {
            "+" => rest.to_owned(),
            "$" | "*" if count() < 0 => "nil".to_owned(),
            "$" => {
                let mut bytes = vec![0; count() as usize + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            "*" => format!("[{}]", (0..count()).map(|_| self.answer()).collect::<Vec<_>>().join(", ")),
            _ => line.to_owned(),
        }
    }
}
