//! The decoder of requests: arrays of bulk strings, and lines that a person types.
//!
//! ```text
//! *3 ─▶ $3 SET ─▶ $8 1/42/3 ─▶ $10240 …        one span per argument, relative to the command's first byte
//! ```
//!
//! *Invariants*: total over any bytes; goes on where it stopped, so that no byte of a header is read twice; memory grows
//! with bytes that have come, never with a number that a client promised (tests below, `fuzz/src/resp.rs`).
//!
//! *On failure*: what Redis would say; the connection is out of step then, and ends.

use super::inline;

/// Most arguments of one command, as in Redis.
const ARGUMENTS_MAX: usize = 1 << 20;
/// Longest line: a header, or a command that a person types, as in Redis.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest number in a header, a sign among its digits.
const DIGITS_MAX: usize = 12;
/// Limits before a client has logged in, as in Redis.
const STRANGER_ARGUMENTS_MAX: usize = 10;
const STRANGER_BYTES_MAX: usize = 16 << 10;

/// Where one argument is in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    length: u32,
}

impl Parts {
    /// Whether nothing more can be read before this command is carried out.
    #[inline]
    pub(super) fn is_line(self) -> bool {
        self.line
    }
}

impl Span {
    pub(super) fn new(start: usize, length: usize) -> Span {
        Span { start: start as u32, length: length as u32 }
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.length as usize).unwrap_or_default()
    }
}

/// One whole command: its name and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Command<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Command<'a> {
    /// Parts, the name among them.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// A part: the name is the first. Nothing if there is none.
    #[inline]
    pub(super) fn part(&self, at: usize) -> &'a [u8] {
        self.spans.get(at).map_or(&[], |span| span.of(self.bytes))
    }

    /// The parts from one on.
    #[inline]
    pub(super) fn from(&self, at: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.get(at..).unwrap_or_default().iter().map(move |span| span.of(bytes))
    }
}

/// How far the input goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A whole command of this many bytes.
    Whole(usize),
    /// The rest has not come yet.
    More,
}

/// The position of the parts of a whole command among those of all that were read ahead.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    first: u32,
    count: u32,
    /// It was a line: its words are kept apart from the input.
    line: bool,
}

/// Reads one command after the other.
#[derive(Debug, Default)]
pub(super) struct Parser {
    spans: Vec<Span>,
    /// Spans before this one are of commands that are whole.
    first: usize,
    /// Parts that the command has; 0 before its header is read.
    expected: usize,
    /// Where reading goes on, from the command's first byte.
    at: usize,
    /// Length of the bulk whose bytes begin at `at`.
    open: Option<usize>,
    /// What a line says, without its quotes.
    line: Vec<u8>,
    /// Bytes that a command may have.
    bytes_max: usize,
    /// Nobody has said yet who this client is.
    stranger: bool,
}

impl Parser {
    /// For commands of at most this many bytes.
    pub(super) fn new(bytes_max: usize) -> Parser {
        Parser { bytes_max: bytes_max.min(u32::MAX as usize / 2), ..Parser::default() }
    }

    /// Whether the client is one that has not said who it is.
    pub(super) fn set_stranger(&mut self, stranger: bool) {
        self.stranger = stranger;
    }

    /// The command that is being read, as far as it is; `bytes` are those that it is read from.
    #[inline]
    pub(super) fn command<'a>(&'a self, bytes: &'a [u8]) -> Command<'a> {
        self.command_of(bytes, self.here())
    }

    /// A whole command that was passed; `bytes` are those that it was read from.
    #[inline]
    pub(super) fn command_of<'a>(&'a self, bytes: &'a [u8], parts: Parts) -> Command<'a> {
        let bytes = if parts.line { &self.line } else { bytes };
        let first = parts.first as usize;
        Command { bytes, spans: self.spans.get(first..first + parts.count as usize).unwrap_or_default() }
    }

    /// Leaves a whole command behind, and goes on with the one that follows it; not after a line, which is the last that
    /// is read ahead.
    #[inline]
    pub(super) fn pass(&mut self) -> Parts {
        let parts = self.here();
        self.first = self.spans.len();
        (self.expected, self.at, self.open) = (0, 0, None);
        parts
    }

    #[inline]
    fn here(&self) -> Parts {
        let count = (self.spans.len() - self.first) as u32;
        Parts { first: self.first as u32, count, line: !self.line.is_empty() }
    }

    /// Forgets commands that were passed; what has begun goes on.
    #[inline]
    pub(super) fn forget_passed(&mut self) {
        if self.first == self.spans.len() {
            self.spans.clear();
        } else {
            self.spans.drain(..self.first);
        }
        self.first = 0;
        self.line.clear();
    }

    /// Parts that are read whole, and how many there will be.
    pub(super) fn parts(&self) -> (usize, usize) {
        (self.spans.len() - self.first, self.expected)
    }

    /// Where the last argument's bytes begin and how many there will be, once everything before them is read.
    #[inline]
    pub(super) fn last_value(&self) -> Option<(usize, usize)> {
        (self.parts().0 + 1 == self.expected).then_some(())?;
        self.open.map(|length| (self.at, length))
    }

    /// Forgets everything: the next byte is the first of a command.
    #[inline]
    pub(super) fn reset(&mut self) {
        // One command with very many arguments must not hold their memory for the life of the connection.
        if self.spans.capacity() > 4096 || self.line.capacity() > 4096 {
            (self.spans, self.line) = (Vec::new(), Vec::new());
        }
        self.spans.clear();
        self.line.clear();
        (self.first, self.expected, self.at, self.open) = (0, 0, 0, None);
    }

    /// Goes on with the command that begins with the first of these bytes: the same ones as before and those that have
    /// come since.
    ///
    /// # Errors
    /// What is wrong, in Redis's words.
    #[inline]
    pub(super) fn parse(&mut self, bytes: &[u8]) -> Result<Progress, String> {
        if self.expected == 0 {
            match bytes.get(self.at) {
                None => return Ok(Progress::More),
                Some(b'*') => {
                    let Some(count) = self.header(bytes, "invalid multibulk length")? else {
                        return Ok(Progress::More);
                    };
                    if count > ARGUMENTS_MAX as i64 {
                        return Err("invalid multibulk length".to_owned());
                    }
                    if self.stranger && count > STRANGER_ARGUMENTS_MAX as i64 {
                        return Err("unauthenticated multibulk length".to_owned());
                    }
                    // Without parts nothing is asked for: a whole command that has no name.
                    self.expected = usize::try_from(count).unwrap_or(0);
                }
                Some(_) => return self.line(bytes),
            }
        }
        while self.spans.len() - self.first < self.expected {
            let length = match self.open {
                Some(length) => length,
                None => match self.bulk_header(bytes)? {
                    Some(length) => length,
                    None => return Ok(Progress::More),
                },
            };
            // Not sliced before it is there: `length` is only a promise.
            let end = self.at + length;
            let Some(tail) = bytes.get(end..end + 2) else { return Ok(Progress::More) };
            if tail != b"\r\n" {
                return Err("a bulk does not end after its length".to_owned());
            }
            debug_assert!(end + 2 <= bytes.len(), "a span lies within the bytes that came");
            self.spans.push(Span::new(self.at, length));
            (self.at, self.open) = (end + 2, None);
        }
        Ok(Progress::Whole(self.at))
    }

    #[inline]
    fn bulk_header(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        match bytes.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(format!("expected '$', got '{}'", char::from(other).escape_default())),
        }
        let Some(length) = self.header(bytes, "invalid bulk length")? else {
            return Ok(None);
        };
        let invalid = || "invalid bulk length".to_owned();
        let length = usize::try_from(length).map_err(|_| invalid())?;
        // Before the general limit: a client without a login must not make the server hold a window of bytes.
        if self.stranger && length > STRANGER_BYTES_MAX {
            return Err("unauthenticated bulk length".to_owned());
        }
        if length > self.bytes_max {
            return Err(invalid());
        }
        if self.at + length > self.bytes_max + LINE_BYTES_MAX {
            return Err(format!("a command of more than {} bytes", self.bytes_max));
        }
        self.open = Some(length);
        Ok(Some(length))
    }

    /// The number in a header at `at`, which goes behind it; `None` where its line is not whole.
    #[inline]
    fn header(&mut self, bytes: &[u8], invalid: &str) -> Result<Option<i64>, String> {
        let from = self.at + 1;
        let (mut value, mut at, mut negative) = (0_i64, from, false);
        loop {
            match bytes.get(at) {
                None => return Ok(None),
                // Bounded digits: no number overflows, and no header is read without end.
                Some(digit @ b'0'..=b'9') if at - from < DIGITS_MAX => value = value * 10 + i64::from(digit - b'0'),
                Some(b'-') if at == from => negative = true,
                Some(b'\r') if at > from + usize::from(negative) => break,
                Some(_) => return Err(invalid.to_owned()),
            }
            at += 1;
        }
        match bytes.get(at + 1) {
            None => Ok(None),
            Some(b'\n') => {
                self.at = at + 2;
                Ok(Some(if negative { -value } else { value }))
            }
            Some(_) => Err(invalid.to_owned()),
        }
    }

    /// A command in one line.
    fn line(&mut self, bytes: &[u8]) -> Result<Progress, String> {
        let line = &bytes[self.at..];
        let longest = if self.stranger { STRANGER_BYTES_MAX } else { LINE_BYTES_MAX };
        let Some(end) = line.iter().take(longest).position(|&byte| byte == b'\n') else {
            let too_long = line.len() >= longest;
            return if too_long { Err("too big inline request".to_owned()) } else { Ok(Progress::More) };
        };
        let text = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
        self.at += end + 1;
        inline::split(text, &mut self.line, &mut self.spans).map_err(|()| "unbalanced quotes in request".to_owned())?;
        self.expected = self.spans.len() - self.first;
        Ok(Progress::Whole(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Commands = Vec<Vec<Vec<u8>>>;

    /// Everything that these bytes ask for, when they come in pieces; and how it ends.
    fn all(bytes: &[u8], pieces: &[usize]) -> (Commands, Option<String>) {
        let (mut parser, mut commands) = (Parser::new(1 << 20), Vec::new());
        let (mut start, mut end) = (0, 0);
        let mut pieces = pieces.iter().copied().cycle();
        loop {
            match parser.parse(&bytes[start..end]) {
                Ok(Progress::Whole(length)) => {
                    let command = parser.command(&bytes[start..start + length]);
                    if command.len() > 0 {
                        commands.push(command.from(0).map(<[u8]>::to_vec).collect());
                    }
                    start += length;
                    parser.reset();
                }
                Ok(Progress::More) if end == bytes.len() => return (commands, None),
                Ok(Progress::More) => end = (end + pieces.next().unwrap_or(1).max(1)).min(bytes.len()),
                Err(error) => return (commands, Some(error)),
            }
        }
    }

    fn ask(text: &str) -> (Vec<String>, Option<String>) {
        let (commands, error) = all(text.as_bytes(), &[usize::MAX / 2]);
        let join = |parts: &Vec<Vec<u8>>| {
            parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect::<Vec<_>>().join("|")
        };
        (commands.iter().map(join).collect(), error)
    }

    #[test]
    fn reads_arrays_and_lines() {
        assert_eq!(
            ask(
                "*2\r\n$3\r\nGET\r\n$5\r\n1/2/3\r\n*1\r\n$0\r\n\r\nPING  there\r\n\r\nECHO \"a b\\x41\"\n*0\r\n*-1\r\nQUIT\n"
            ),
            (["GET|1/2/3", "", "PING|there", "ECHO|a bA", "QUIT"].map(str::to_owned).into(), None)
        );
    }

    #[test]
    fn says_what_redis_would_say() {
        for (text, error) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*1048577\r\n", "invalid multibulk length"),
            ("*99999999999999999999999\r\n", "invalid multibulk length"),
            ("*1\r\n+PING\r\n", "expected '$', got '+'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$4294967295\r\n", "invalid bulk length"),
            ("*1\r\n$\r\n", "invalid bulk length"),
            ("*1\r\n$4\r\nPINGxx", "a bulk does not end after its length"),
            ("ECHO \"a\r\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(ask(text), (vec![], Some(error.to_owned())), "{text:?}");
        }
        assert_eq!(ask(&"a".repeat(LINE_BYTES_MAX)).1.as_deref(), Some("too big inline request"));
        let mut stranger = Parser::new(1 << 20);
        stranger.set_stranger(true);
        assert_eq!(stranger.parse(b"*11\r\n"), Err("unauthenticated multibulk length".to_owned()));
        stranger.reset();
        assert_eq!(stranger.parse(b"*1\r\n$16385\r\n"), Err("unauthenticated bulk length".to_owned()));
    }

    #[test]
    fn a_promise_takes_no_memory() {
        let mut parser = Parser::new(16 << 20);
        assert_eq!(parser.parse(b"*1048576\r\n$16777216\r\n"), Ok(Progress::More));
        assert!(parser.spans.capacity() < 64);
        assert_eq!(parser.last_value(), None);
        parser.reset();
        assert_eq!(parser.parse(b"*2\r\n$1\r\na\r\n$16777216\r\nxyz"), Ok(Progress::More));
        assert_eq!(parser.last_value(), Some((22, 16 << 20)));
    }

    proptest! {
        #[test]
        fn any_split_reads_the_same(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5), 0..12),
            rubbish in prop::collection::vec(any::<u8>(), 0..40),
            pieces in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let mut bytes = Vec::new();
            for command in &commands {
                bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
                for part in command {
                    bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
                    bytes.extend_from_slice(part);
                    bytes.extend_from_slice(b"\r\n");
                }
            }
            bytes.extend_from_slice(&rubbish);
            let whole = all(&bytes, &[usize::MAX / 2]);
            prop_assert!(whole.0.starts_with(&commands));
            prop_assert_eq!(all(&bytes, &pieces), whole);
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'"'), any::<u8>()], 0..300)) {
            let whole = all(&bytes, &[usize::MAX / 2]);
            prop_assert_eq!(all(&bytes, &[1]), whole);
        }
    }
}
